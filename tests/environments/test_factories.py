import contextlib
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import types

import dm_env
import gymnasium
import numpy as np
import pytest
from absl.testing import absltest
from dm_env import specs, test_utils

from minerva_acme import environments, experiments, testing, wrappers
from minerva_acme.environments import importing
from tests.distributed import small


def run_python(code, **environment):
    """Runs code in a fresh interpreter without a display or a chosen renderer."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("MUJOCO_GL", "PYOPENGL_PLATFORM", "DISPLAY", "WAYLAND_DISPLAY")
    }
    return subprocess.run(
        [sys.executable, "-c", code], env=clean | environment, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("name", ["dm_control/cheetah/run", "HalfCheetah-v5"])
def test_a_deprecation_that_only_authors_of_a_model_can_change_is_left_out(name, caplog, capfd):
    pytest.importorskip("dm_control")
    pytest.importorskip("mujoco")
    environments.make(name, 0).close()
    assert (caplog.text, capfd.readouterr()) == ("", ("", ""))


def test_other_warnings_of_mujoco_and_those_of_your_own_model_are_heard(caplog, monkeypatch, tmp_path):
    mujoco = pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)  # MuJoCo may write a log
    body = "<body><joint/><geom size='1'/></body>"
    own = f"<mujoco><compiler settotalmass='1'/><worldbody>{body}</worldbody></mujoco>"
    heard, before = [], mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(heard.append)
    try:
        with importing.others_model():
            model = mujoco.MjModel.from_xml_string(own)
            assert not caplog.messages
            data = mujoco.MjData(model)
            data.qpos[:] = np.nan
            mujoco.mj_step(model, data)
        assert caplog.messages[0].startswith("MuJoCo: Nan") and heard == []
        mujoco.MjModel.from_xml_string(own)
        assert len(heard) == 1
    finally:
        mujoco.set_mju_user_warning(before)


def test_a_seed_may_be_an_integer_of_numpy():
    found, expected = (environments.make("CartPole-v1", seed).reset() for seed in (np.int64(5), 5))
    np.testing.assert_array_equal(found.observation, expected.observation)


def test_the_seed_of_a_dm_control_task_is_not_replaced_by_its_setting():
    with pytest.raises(ValueError, match="`random` of a dm_control task must not be given, got 3.*`seed`"):
        environments.make("dm_control/cartpole/swingup", 0, random=3)


@pytest.mark.parametrize(
    ("environment_id", "seed_gives"),
    [
        ("dm_control/cartpole/swingup", lambda timestep: timestep.observation["position"]),
        ("Pendulum-v1", lambda timestep: timestep.observation),
    ],
)
def test_the_seed_determines_the_first_episode(environment_id, seed_gives):
    first, again, other = (seed_gives(environments.make(environment_id, seed).reset()) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_gymnasium_id_may_carry_a_prefix():
    plain, prefixed = (environments.make(name, 0) for name in ("Pendulum-v1", "gymnasium/Pendulum-v1"))
    np.testing.assert_array_equal(plain.reset().observation, prefixed.reset().observation)


def test_task_settings_reach_the_task():
    dm_control = environments.make("dm_control/cartpole/swingup", 0, time_limit=0.05)
    gymnasium = environments.make("Pendulum-v1", 0, max_episode_steps=5)
    for environment in (dm_control, gymnasium):
        environment.reset()
        timesteps = [environment.step(np.zeros(1)) for _ in range(5)]
        assert [timestep.last() for timestep in timesteps] == [False] * 4 + [True]
        assert timesteps[-1].discount == 1.0


@pytest.mark.parametrize(
    ("environment_id", "suggestions"),
    [
        (
            "dm_control/cartpole/swing_up",
            ["dm_control/cartpole/swingup", "dm_control/cartpole/swingup_sparse"],
        ),
        ("dm_control/walker", ["dm_control/walker/walk", "dm_control/walker/run"]),
        ("swingup", ["dm_control/cartpole/swingup", "dm_control/acrobot/swingup"]),
        ("Pendulum-v9", ["Pendulum-v1"]),
        ("gymnasium/pendulm", ["Pendulum-v1"]),
        ("cheetah/run", ["dm_control/cheetah/run"]),
        ("cartpole", ["CartPole-v1", "dm_control/cartpole/balance"]),
    ],
)
def test_an_unknown_id_is_refused_with_near_matches(environment_id, suggestions):
    with pytest.raises(ValueError, match=r"`environment_id` must be .* Did you mean") as error:
        environments.make(environment_id)
    assert f"got '{environment_id}'." in str(error.value)
    for suggestion in suggestions:
        assert suggestion in str(error.value)


def test_an_id_like_no_other_is_refused_with_where_to_look():
    with pytest.raises(ValueError, match="got 'zzzzzz'. `minerva list environments` shows the ids that"):
        environments.make("zzzzzz")


@pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")
@pytest.mark.parametrize(
    ("environment_id", "suggested"),
    [
        ("HalfCheetah-v3", ["HalfCheetah-v5", "HalfCheetah-v4"]),
        ("Humanoid-v2", ["Humanoid-v5", "Humanoid-v4"]),
    ],
)
def test_a_version_that_has_gone_points_to_the_newest_and_only_to_what_can_be_made(environment_id, suggested):
    with pytest.raises(ValueError, match="Did you mean") as error:
        environments.make(environment_id)
    found = str(error.value).partition("Did you mean ")[2].removesuffix("?").split(", ")
    assert found[:2] == suggested
    assert set(found) <= set(environments.list_makeable())


@pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")
def test_a_newest_version_that_needs_a_package_is_suggested_with_it(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "Box2D" else find(name))
    said = r"Did you mean LunarLander-v3 \(for which: pip install 'gymnasium\[box2d\]'\)\?"
    with pytest.raises(ValueError, match=said):
        environments.make("LunarLander-v2")


@pytest.mark.parametrize("environment_id", ["ALE/Pong-v5", "BreakoutNoFrameskip-v4", "Pong-ram-v4"])
def test_an_atari_game_names_its_package_and_the_id_with_its_module(environment_id):
    with pytest.raises(ImportError, match=rf"of the package ale-py.* ale_py:{environment_id}$"):
        environments.make(environment_id)


def test_a_module_that_there_is_not_is_told_from_a_missing_package(monkeypatch):
    with pytest.raises(ValueError, match="There is no module 'gym'.* Gymnasium has CartPole-v1 without"):
        environments.make("gym:CartPole-v1")

    def needs_more(**kwargs):
        raise ModuleNotFoundError("No module named 'more'", name="more")

    gymnasium.register("Needy-v0", needs_more)
    monkeypatch.setitem(sys.modules, "needy", types.ModuleType("needy"))
    try:
        with pytest.raises(ModuleNotFoundError, match="'more'"):
            environments.make("needy:Needy-v0")
    finally:
        del gymnasium.registry["Needy-v0"]


def test_an_id_that_gymnasium_cannot_read_is_refused():
    with pytest.raises(ValueError, match="'two words' cannot be made: Malformed environment ID"):
        environments.make("two words")


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range_is_refused(seed):
    with pytest.raises(ValueError, match=rf"`seed` must be None or in \[0, 2\*\*32\), got {seed}\."):
        environments.make("Pendulum-v1", seed)


def test_a_missing_extra_is_named_with_the_command_that_brings_it():
    code = """
import sys
sys.modules["imageio"] = None
from minerva_acme import environments
try:
    environments.make("HalfCheetah-v5")
except ImportError as error:
    print(error)
"""
    result = run_python(code)
    assert (
        "'HalfCheetah-v5' needs 'imageio', which is not installed: pip install 'gymnasium[mujoco]'"
        in result.stdout
    )


def test_listed_environments_are_sorted_and_hold_both_kinds():
    names = environments.list_environments()
    assert names == sorted(names)
    assert {"dm_control/cartpole/swingup", "Pendulum-v1"} <= set(names)


@pytest.mark.parametrize(
    ("environment_id", "size", "action_spec"),
    [
        ("dm_control/walker/walk", 24, specs.BoundedArray((6,), np.float32, -np.ones(6), np.ones(6))),
        ("Pendulum-v1", 3, specs.BoundedArray((1,), np.float32, -np.ones(1), np.ones(1))),
        ("CartPole-v1", 4, specs.DiscreteArray(2, dtype=np.int32)),
    ],
)
def test_the_training_environment_is_flat_float32_and_canonical(environment_id, size, action_spec):
    environment = environments.make_training_environment(environment_id, seed=0)
    assert environment.observation_spec() == specs.Array((size,), np.float32)
    assert environment.action_spec() == action_spec
    assert environment.reward_spec().dtype == environment.discount_spec().dtype == np.float32


def test_a_canonical_action_of_one_is_the_full_torque_of_the_pendulum():
    pendulum = environments.make("Pendulum-v1", seed=0)
    environment = environments.make_training_environment(pendulum)
    environment.reset()
    environment.step(np.ones(1, np.float32))
    assert pendulum.environment.unwrapped.last_u == 2.0


def test_an_environment_that_exists_is_wrapped_as_it_is():
    made = environments.make("Pendulum-v1", 0)
    environment = environments.make_training_environment(made)
    checked = environment.environment.environment.environment
    assert isinstance(checked, wrappers.SpecCheckWrapper) and checked.environment is made


def test_importing_and_making_is_quiet_without_a_display():
    code = """
from minerva_acme import environments
environments.make_training_environment("dm_control/cartpole/swingup", 0).reset()
"""
    result = run_python(code)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_training_works_where_egl_does_not():
    code = """
import os
from minerva_acme import environments
environments.make_training_environment("dm_control/cartpole/swingup", 0).reset()
print(os.environ["MUJOCO_GL"])
"""
    # PyOpenGL bound to another platform makes EGL fail to import, as it does where it is missing.
    result = run_python(code, PYOPENGL_PLATFORM="osmesa")
    assert (result.returncode, result.stdout, result.stderr) == (0, "disabled\n", "")


def test_a_renderer_that_the_user_chose_is_left_alone():
    code = """
import os
from minerva_acme import environments
environments.make("dm_control/cartpole/swingup")
print(os.environ["MUJOCO_GL"])
"""
    assert run_python(code, MUJOCO_GL="disabled").stdout == "disabled\n"


@pytest.mark.parametrize("first", ["", "from dm_control import composer"])
def test_fields_that_a_newer_mujoco_no_longer_has_are_not_missed(first):
    code = f"""
import mujoco
del mujoco.MjModel.flex_vertedge, mujoco.MjData.flexvert_length  # as in MuJoCo 4
{first}
from minerva_acme import environments
environments.make("dm_control/cartpole/swingup").reset()
"""
    done = run_python(code, MUJOCO_GL="disabled")
    assert done.returncode == 0, done.stderr


def test_importing_the_module_imports_no_simulator():
    code = """
import sys
import minerva_acme.environments, minerva_acme.wrappers
print([name for name in ("dm_control", "mujoco", "gymnasium", "torch") if name in sys.modules])
"""
    assert run_python(code).stdout == "[]\n"


class _TrainingConformance(test_utils.EnvironmentTestMixin):
    environment_id: str
    task_kwargs: dict[str, float]

    def make_object_under_test(self) -> dm_env.Environment:
        return environments.make_training_environment(self.environment_id, 0, **self.task_kwargs)


class CartpoleConformanceTest(_TrainingConformance, absltest.TestCase):
    environment_id = "dm_control/cartpole/swingup"
    task_kwargs = {"time_limit": 0.05}


class BallInCupConformanceTest(_TrainingConformance, absltest.TestCase):
    environment_id = "dm_control/ball_in_cup/catch"
    task_kwargs = {"time_limit": 0.1}


class WalkerConformanceTest(_TrainingConformance, absltest.TestCase):
    environment_id = "dm_control/walker/walk"
    task_kwargs = {"time_limit": 0.1}


class PendulumConformanceTest(_TrainingConformance, absltest.TestCase):
    environment_id = "Pendulum-v1"
    task_kwargs = {"max_episode_steps": 7}


class DiscreteConformanceTest(_TrainingConformance, absltest.TestCase):
    environment_id = "CartPole-v1"
    task_kwargs = {}


def test_only_environments_whose_packages_are_there_count_as_makeable(monkeypatch):
    makeable = environments.list_makeable()
    assert {"CartPole-v1", "dm_control/cartpole/swingup", "HalfCheetah-v5"} <= set(makeable)
    assert makeable == sorted(set(makeable))
    # mujoco-py's and those that moved elsewhere are registered, but say so when they are made.
    assert not {"HalfCheetah-v3", "GymV21Environment-v0"} & set(makeable)
    found = importlib.util.find_spec
    missing = {"mujoco", "jax", "Box2D"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else found(name))
    fewer = environments.list_makeable()
    assert "CartPole-v1" in fewer
    assert not [
        name for name in fewer if name.startswith(("HalfCheetah", "LunarLander", "phys2d", "tabular"))
    ]


def test_the_tasks_read_in_the_suites_source_are_those_of_the_suite():
    code = """
import json, sys
from minerva_acme import environments
from minerva_acme.environments import factories
listed = [name for name in environments.list_makeable() if name.startswith("dm_control/")]
assert not {"dm_control", "mujoco"} & set(sys.modules)
print(json.dumps([listed, factories._import_suite().ALL_TASKS]))
"""
    listed, there = json.loads(run_python(code).stdout)
    assert listed == sorted(f"dm_control/{domain}/{task}" for domain, task in there)
    assert len(listed) > 40


@pytest.mark.parametrize(
    "made", ["'dm_control/cartpole/swingup', seed=0", "'InvertedPendulum-v5', render_mode='rgb_array'"]
)
def test_triton_is_loaded_before_opengl(tmp_path, made):
    # Two versions of LLVM: with triton as the second, the first optimiser would crash the process.
    (tmp_path / "triton.py").write_text("import sys\nfirst = 'OpenGL' not in sys.modules\n")
    code = (
        "import sys\n"
        "from minerva_acme import environments\n"
        f"environments.make({made}).close()\n"
        "print(sys.modules['triton'].first)"
    )
    done = run_python(code, PYTHONPATH=str(tmp_path))
    assert done.stdout.strip() == "True", done.stderr


def first_observations(environment, number=2):
    return [environment.reset().observation for _ in range(number)]


def test_a_gymnasium_environment_that_is_made_already_takes_the_seed():
    def make(seed):
        return environments.make_training_environment(gymnasium.make("Pendulum-v1"), seed)

    by_id = environments.make_training_environment("Pendulum-v1", seed=3)
    testing.assert_nests_equal(first_observations(make(3)), first_observations(by_id))
    assert not np.array_equal(first_observations(make(3)), first_observations(make(4)))


def test_a_dm_env_environment_that_is_made_already_is_seeded_by_its_method():
    inner = environments.make("Pendulum-v1", seed=5)
    seeded = environments.make_training_environment(inner, seed=3)
    by_id = environments.make_training_environment("Pendulum-v1", seed=3)
    testing.assert_nests_equal(first_observations(seeded), first_observations(by_id))


def test_an_environment_that_is_made_already_and_has_no_method_seed_refuses_one():
    with pytest.raises(
        ValueError, match="`seed` must be None for .* without a method `seed`, got 0 for a FakeEnv"
    ):
        environments.make_training_environment(testing.FakeEnvironment(), seed=0)
    with pytest.raises(ValueError, match=r"Task settings must not be given .*, got \['g'\]"):
        environments.make_training_environment(gymnasium.make("Pendulum-v1"), g=9.8)


class Parallel:
    """The shape of PettingZoo's parallel environments."""

    metadata = {"name": "fake_v0"}
    possible_agents = ["red", "blue"]

    def observation_space(self, agent):
        return gymnasium.spaces.Box(-1, 1, (2,))

    def reset(self, seed=None, options=None):
        return {"red": np.zeros(2), "blue": np.zeros(2)}, {}


class TurnByTurn(Parallel):
    """The shape of PettingZoo's AEC environments."""

    agent_selection = "red"

    def reset(self, seed=None, options=None):
        return None


def pettingzoos(kind):
    rps = pytest.importorskip("pettingzoo.classic.rps_v2", exc_type=ImportError)
    return rps.env() if kind == "aec" else rps.parallel_env()


MULTI = "must have one agent, got .* of PettingZoo, which has several. Write a Gymnasium environment around"


@pytest.mark.parametrize("make", [Parallel, TurnByTurn])
def test_an_environment_of_several_agents_is_refused_with_the_way_out(make, tmp_path):
    with pytest.raises(ValueError, match=MULTI):
        environments.make_training_environment(make())
    with pytest.raises(ValueError, match=MULTI):
        environments.make_training_environment(make(), seed=3)
    with pytest.raises(ValueError, match=MULTI):
        environments.GymnasiumEnvironment(make())
    config = small.experiment(tmp_path, small.sac_builder())
    with pytest.raises(ValueError, match=MULTI):
        experiments.run_experiment(dataclasses.replace(config, environment_factory=lambda seed: make()))
    assert not list(tmp_path.iterdir())


def make_several(kind):
    if kind == "gymnasium":
        return gymnasium.make_vec("CartPole-v1", num_envs=3)
    if kind == "batched":
        return environments.BatchedPendulum(3, generator=None)
    return environments.InProcessVectorEnvironment([testing.FakeEnvironment() for _ in range(3)])


@pytest.mark.parametrize("kind", ["gymnasium", "batched", "vector"])
def test_a_vector_in_place_of_an_environment_is_refused_with_the_way_out(kind, tmp_path):
    message = "`environment` must be a single one, got a .* of 3. Make one,.*`GymnasiumVectorEnvironment`"
    with contextlib.closing(make_several(kind)) as several:
        for take in (environments.make_training_environment, environments.GymnasiumEnvironment):
            with pytest.raises(ValueError, match=message):
                take(several)
    config = small.experiment(tmp_path, small.sac_builder())
    if kind == "gymnasium":
        with pytest.raises(
            ValueError, match="got the vector CartPoleVectorEnv. Wrap it: `GymnasiumVectorEnv"
        ):
            experiments.run_experiment(
                dataclasses.replace(config, environment_factory=lambda seed: make_several(kind))
            )


def test_a_class_in_place_of_an_environment_is_refused_with_the_way_out():
    for kind in (testing.FakeEnvironment, gymnasium.Env):
        with pytest.raises(ValueError, match=rf"got the class {kind.__name__}. Call it: {kind.__name__}\("):
            environments.make_training_environment(kind)


@pytest.mark.parametrize("kind", ["aec", "parallel"])
def test_an_environment_of_pettingzoos_is_refused_with_the_way_out(kind):
    with pytest.raises(ValueError, match=MULTI):
        environments.make_training_environment(pettingzoos(kind))
