"""Programs act as their policy, from the task's own observations to its own actions, in whole episodes."""

import functools
import importlib.util
import json

import dm_env
import gymnasium
import numpy as np
import pytest
import torch
import tree

from minerva_acme import environments, runs, specs, wrappers
from minerva_acme.agents import mpo, ppo
from minerva_acme.environments import task_actions
from minerva_acme.runs import loaded_policy, plain_specs, programs
from tests.runs import short_run

MISSING = [name for name in ("onnx", "onnxruntime", "onnxscript") if importlib.util.find_spec(name) is None]
FORMATS = [
    "pt2",
    pytest.param(
        "onnx",
        marks=pytest.mark.skipif(
            bool(MISSING), reason=f"{MISSING} missing: the extra `onnx` needs Python 3.12, without TensorFlow"
        ),
    ),
]
MEMORIES = ["none", "lstm", "gru"]


class Robot(specs.SpecMethods, dm_env.Environment):
    """Observations in a dict and in double precision, episodes of 2 to 6 steps, actions with own bounds."""

    def __init__(self, seed=0):
        self._random = np.random.default_rng(seed)
        self._specs = specs.EnvironmentSpec(
            {"speed": specs.Array((2,), np.float64), "height": specs.Array((), np.float64)},
            specs.BoundedArray((2,), np.float64, [-1.0, -3.0], [2.0, 5.0], name="torque"),
            specs.Array((), np.float64),
            specs.BoundedArray((), np.float64, 0.0, 1.0),
        )

    def _observe(self):
        return {"speed": 3.0 * self._random.normal(size=2) + 1.0, "height": self._random.normal()}

    def reset(self):
        self._left = self._random.integers(2, 7)
        return dm_env.restart(self._observe())

    def step(self, action):
        self._specs.actions.validate(action)
        self._left -= 1
        return (dm_env.transition if self._left else dm_env.termination)(1.0, self._observe())


def make_robot(seed):
    return environments.make_training_environment(Robot(seed))


def make_policies(memory):
    """The policy as in training and in the task's bounds; its weights and statistics are not initial ones."""
    spec = specs.make_environment_spec(make_robot(0))
    builder = ppo.PPOBuilder(ppo.PPOConfig(**short_run.SMALL, memory=memory, memory_size=8))
    networks = builder.make_networks(spec, torch.Generator().manual_seed(0))
    policy = builder.make_policy(networks, spec, torch.Generator(), evaluation=True)
    generator = torch.Generator().manual_seed(1)
    for parameter in policy.module.parameters():
        parameter += 0.5 * torch.randn(parameter.shape, generator=generator)
    policy.module.normalizer.mean += 1.0
    policy.module.normalizer.var *= 9.0
    to_task = task_actions.TaskActions(spec.actions, Robot().action_spec())
    return [loaded_policy.LoadedPolicy(policy, spec.observations, convert) for convert in (None, to_task)]


@pytest.fixture(scope="module")
def load_program(tmp_path_factory):
    """Writes the policy in the task's bounds, once, and loads it."""

    @functools.cache
    def load(format_, memory):
        _, task = make_policies(memory)
        bare = Robot().observation_spec()
        module = programs.from_task(task.as_module(), bare, make_robot(0).observation_spec())
        inputs, file = programs.make_inputs(task, bare), tmp_path_factory.mktemp("program") / "policy"
        if format_ == "pt2":
            torch.export.save(programs.export(module, inputs), file.with_suffix(".pt2"))
            return programs.load(str(file.with_suffix(".pt2")))
        programs.write_onnx(module, inputs, str(file.with_suffix(".onnx")), "{}")
        return programs.load_onnx(str(file.with_suffix(".onnx")))

    return load


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.promise("Deploying")
def test_a_program_acts_as_the_policy_on_the_bare_task_in_whole_episodes(format_, memory, load_program):
    program, (agent, _) = load_program(format_, memory), make_policies(memory)
    found = programs.compare(program, agent, make_robot, "task", 3)
    assert found.largest <= 1e-6
    assert found.num_episodes == 3 * 8
    assert found.num_steps >= 3 * 8 * 2
    print(f"largest difference of {format_}, memory {memory}: {found.largest:.1e} of the action range")


@pytest.mark.parametrize("memory", MEMORIES)
def test_actions_of_a_program_have_the_tasks_bounds_and_precision(memory, load_program):
    program = load_program("pt2", memory)
    _, task = make_policies(memory)
    far = {
        "speed": 1e3 * np.array([[1.0, 2.0], [-2.0, 1.0], [-3.0, -1.0]]),
        "height": np.array([1.0, 2.0, -9.0]),
    }
    state = task.initial_state(3)
    output = program(far, state, np.ones(3, bool)) if memory != "none" else program(far)
    action = output[0] if memory != "none" else output
    for row in action:
        Robot().action_spec().validate(row)
    flat = np.concatenate([far["height"][:, None], far["speed"]], axis=1)
    np.testing.assert_allclose(action, task.step(flat, state)[0].action, atol=1e-5)


def test_an_episode_starts_from_the_initial_state_and_the_other_rows_go_on(load_program):
    program = load_program("pt2", "gru")
    observations = {"speed": np.ones((2, 2)), "height": np.ones(2)}
    kept = (np.full((2, 8), 0.7, np.float32),)
    actions, (after,) = program(observations, kept, np.array([True, False]))
    again, (later,) = program(observations, (np.zeros((2, 8), np.float32),), np.array([False, False]))
    np.testing.assert_array_equal(actions[0], again[0])
    np.testing.assert_array_equal(after[0], later[0])
    assert np.abs(after[1] - later[1]).max() > 0.1
    assert np.abs(actions[1] - again[1]).max() > 1e-3


def as_program(policy, change=lambda action: action, resets=True):
    """The policy itself, from the task's observations to its actions, as a program."""

    def run(observations, state=(), start=None):
        flat = np.concatenate([observations["height"][:, None], observations["speed"]], axis=1)
        if start is not None and resets:
            state = tuple(np.where(start[:, None], 0.0, part).astype(np.float32) for part in state)
        output, state = policy.step(flat, state)
        return (change(output.action), state) if start is not None else change(output.action)

    return run


RANGE = np.array([3.0, 8.0])


def test_the_largest_difference_is_relative_to_the_range_of_each_action():
    agent, task = make_policies("none")
    program = as_program(task, lambda action: action + 2e-6 * RANGE * [0.5, -1.0])
    assert programs.compare(program, agent, make_robot, "task", 1).largest == pytest.approx(2e-6, rel=1e-6)


@pytest.mark.parametrize(("error", "words"), [(2e-5, "2e-05"), (np.nan, "nan")])
def test_a_program_that_differs_is_refused(error, words):
    agent, task = make_policies("none")
    calls = []

    def change(action):  # at a single step, in a single row
        calls.append(0)
        return action + error * RANGE if len(calls) == 2 else action

    with pytest.raises(ValueError, match=f"at most 1e-05 of their range, but they differ by {words}"):
        programs.compare(as_program(task, change), agent, make_robot, "task", 2)


@pytest.mark.parametrize("memory", ["lstm", "gru"])
def test_a_program_that_forgets_nothing_at_the_start_of_an_episode_is_refused(memory):
    agent, task = make_policies(memory)
    assert programs.compare(as_program(task), agent, make_robot, "task", 2).largest == 0.0
    with pytest.raises(ValueError, match="at most 1e-05 of their range"):
        programs.compare(as_program(task, resets=False), agent, make_robot, "task", 2)


def test_without_an_episode_nothing_is_compared():
    agent, task = make_policies("none")
    with pytest.raises(ValueError, match="`num_episodes` must be >= 1 to compare a program, got 0"):
        programs.compare(as_program(task), agent, make_robot, "task", 0)


def test_the_agents_interface_is_recorded_around_all_wrappers():
    wrapped, recorder = programs.record(make_robot(0), "agent")
    timestep = wrapped.reset()
    assert recorder.observation is timestep.observation
    assert recorder.observation.shape == (3,)
    wrapped.step(action := np.array([1.0, -1.0], np.float32))
    assert recorder.action is action
    wrapped, recorder = programs.record(make_robot(0), "task")
    wrapped.reset()
    assert sorted(recorder.observation) == ["height", "speed"]
    wrapped.step(action)
    np.testing.assert_array_equal(recorder.action, [2.0, -3.0])


class Turned(wrappers.EnvironmentWrapper):
    def __init__(self, environment):
        super().__init__(environment)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Turned(make_robot(0)),  # outside
        lambda: wrappers.SinglePrecisionWrapper(
            wrappers.ConcatObservationWrapper(
                wrappers.CanonicalActionWrapper(
                    wrappers.ConcatObservationWrapper(Robot(0), name_filter=["speed"])
                )
            )
        ),
    ],
)
def test_a_task_behind_other_wrappers_is_unknown(make):
    with pytest.raises(ValueError, match="must be inside the wrappers of `make_training_environment`"):
        programs.record(make(), "task")


def test_observations_that_became_floats_are_refused():
    spec = {"room": specs.DiscreteArray(4), "speed": specs.Array((2,), np.float64)}
    with pytest.raises(
        ValueError, match=r"must be floats or images, but `?observation.*room.* became floats"
    ):
        programs.from_task(torch.nn.Identity(), spec, specs.Array((6,), np.float32))


def test_a_nest_that_stays_one_is_cast_leaf_by_leaf():
    task = {"place": specs.Array((2, 2, 2), np.float64), "kind": specs.Array((3,), np.float32)}
    agent = tree.map_structure(lambda leaf: leaf.replace(dtype=np.float32), task)
    given = {"place": torch.ones(5, 2, 2, 2, dtype=torch.float64), "kind": torch.ones(5, 3)}
    found = programs.from_task(torch.nn.Identity(), task, agent)(given)
    assert {key: (value.dtype, value.shape) for key, value in found.items()} == {
        key: (torch.float32, value.shape) for key, value in given.items()
    }


class Spaced(gymnasium.Env):
    """Sums what the action is, in its own numbers."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,))

    def __init__(self, action_space):
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.steps += 1
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), 0.0, self.steps == 4, False, {}


def play_spaced(space):
    """The policy with the task's actions, and an environment without wrappers."""
    wrapped = environments.make_training_environment(Spaced(space), 0)
    spec = specs.make_environment_spec(wrapped)
    builder = ppo.PPOBuilder(ppo.PPOConfig(**short_run.SMALL))
    if specs.is_hybrid(spec.actions):
        builder = mpo.MPOBuilder(mpo.MPOConfig(policy_layer_sizes=(8,), critic_layer_sizes=(8,)))
    networks = builder.make_networks(spec, torch.Generator().manual_seed(0))
    policy = builder.make_policy(networks, spec, torch.Generator(), evaluation=True)
    for parameter in policy.module.parameters():
        parameter += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    vector = environments.make_vector([lambda: wrapped], processes=False)
    assert task_actions.find(vector) == task_actions.find(wrapped)
    packed = plain_specs.pack(task_actions.find(wrapped))
    to_task = task_actions.TaskActions(spec.actions, plain_specs.unpack(packed))
    return policy, loaded_policy.LoadedPolicy(policy, spec.observations, to_task)


OWN_NUMBERS = {
    "discrete": gymnasium.spaces.Discrete(3, start=5),
    "negative": gymnasium.spaces.Discrete(3, start=-1),
    "dict": gymnasium.spaces.Dict(a=gymnasium.spaces.Discrete(3, start=5), b=gymnasium.spaces.Discrete(2)),
    "multi-discrete": gymnasium.spaces.MultiDiscrete([2, 3], start=[4, -7]),
    "axes": gymnasium.spaces.MultiDiscrete([[2, 3], [4, 5]]),
    "one in bounds": gymnasium.spaces.Box(2, 4, (), np.int64),
    "floats of two axes": gymnasium.spaces.Box(-2.0, 3.0, (2, 2)),
    "floats in a nest": gymnasium.spaces.Tuple([gymnasium.spaces.Box(2.0, 3.0, (2, 2))] * 2),
    "both kinds": gymnasium.spaces.Dict(
        tools=gymnasium.spaces.MultiDiscrete([2, 3], start=[4, -7]),
        arm=gymnasium.spaces.Tuple(
            [gymnasium.spaces.Discrete(3, start=5), gymnasium.spaces.Box(-2.0, 3.0, (2, 2))]
        ),
        throttle=gymnasium.spaces.Box(0.0, 9.0, ()),
    ),
}


@pytest.mark.parametrize("name", OWN_NUMBERS)
def test_actions_are_the_spaces_own_numbers(name):
    space = OWN_NUMBERS[name]
    policy, task = play_spaced(space)
    observations = np.random.default_rng(0).uniform(-1, 1, (9, 3)).astype(np.float32)
    batch = task.batch(observations).action
    for index, observation in enumerate(observations):
        action = task(observation).action
        assert space.contains(action)
        # A batch may be multiplied in another order than a single observation.
        tree.map_structure(
            functools.partial(np.testing.assert_allclose, rtol=1e-5),
            action,
            tree.map_structure(lambda leaf, index=index: leaf[index], batch),
        )
    module = task.as_module()
    if name in ("dict", "both kinds"):  # to trace it takes a second, and the others have no other operations
        module = programs.export(module, (observations,)).module()

    def program(observed):
        return tree.map_structure(torch.Tensor.numpy, module(torch.from_numpy(observed)))

    tree.map_structure(functools.partial(np.testing.assert_allclose, atol=1e-5), program(observations), batch)

    def make_environment(seed):
        return environments.make_training_environment(Spaced(space), seed)

    assert programs.compare(program, policy, make_environment, "task", 1).largest <= 1e-5


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return short_run.train(tmp_path_factory.mktemp("run") / "run", memory="gru", memory_size=8)


@pytest.mark.parametrize("format_", FORMATS)
def test_a_run_is_exported_and_compared(format_, run, tmp_path):
    file = tmp_path / f"policy.{format_}"
    found = runs.export_policy(run, file, format=format_, compare_episodes=1)
    assert found.largest == 0.0
    assert found.num_episodes == 8
    assert file.exists()
    if format_ == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(file)
        metadata = session.get_modelmeta().custom_metadata_map["minerva_acme"]
        assert json.loads(metadata)["environment"] == "CartPole-v1"
        assert [each.name for each in session.get_inputs()] == ["observation", "state/0", "start"]
        assert [each.name for each in session.get_outputs()] == ["action", "next_state/0"]
        assert b"programs.py" not in file.read_bytes()  # no paths of this machine
        assert session.get_outputs()[0].type == "tensor(int64)"


class Halves(torch.nn.Module):
    """A policy of two actions, which may have a state."""

    def forward(self, observations, state=(), start=None):
        first, second = observations.chunk(2, dim=-1)
        action = {"arm": first + 1.0, "grip": (second > 0.0).int()}
        if start is None:
            return action
        return action, (torch.where(start[:, None], 2.0 * first, state[0]),)


@pytest.mark.parametrize("has_state", [False, True])
@pytest.mark.parametrize("format_", FORMATS)
def test_each_part_of_a_nest_of_actions_is_an_output_of_its_own(format_, has_state, tmp_path):
    observations, file = np.float32([[1.0, 2.0, 3.0, -1.0]] * 2), str(tmp_path / "policy")
    inputs = (observations, (observations[:, :2],), np.ones(2, bool)) if has_state else (observations,)
    if format_ == "pt2":
        torch.export.save(programs.export(Halves(), inputs), file)
        program = programs.load(file)
    else:
        programs.write_onnx(Halves(), inputs, file, "{}")
        program = programs.load_onnx(file)
    found = program(*inputs)
    if has_state:
        found, (state,) = found
        np.testing.assert_array_equal(state, 2.0 * observations[:, :2])
    if format_ == "onnx":
        found = dict(zip(("arm", "grip"), found, strict=True))
    assert found.keys() == {"arm", "grip"}
    np.testing.assert_array_equal(found["arm"], observations[:, :2] + 1.0)
    np.testing.assert_array_equal(found["grip"], [[1, 0]] * 2)


def test_a_program_that_differs_is_not_written(run, tmp_path, monkeypatch):
    file = tmp_path / "policy.pt2"
    load = programs.load

    def wrong(path):
        program = load(path)

        def act(*inputs):
            actions, state = program(*inputs)
            return 1 - actions, state

        return act

    monkeypatch.setattr(programs, "load", wrong)
    with pytest.raises(ValueError, match="they differ by 1 in .* steps, so it is not written"):
        runs.export_policy(run, file, format="pt2", compare_episodes=1)
    assert not list(tmp_path.iterdir())
    assert runs.export_policy(run, file, format="pt2") is None
    assert file.exists()
