"""Each adapter before the other side's own checker, and there and back again."""

import gymnasium
import numpy as np
import pytest
from gymnasium.envs import registration
from gymnasium.utils import env_checker

from minerva_acme import environments, specs, testing

DM_CONTROL = [
    "dm_control/cartpole/swingup",
    "dm_control/finger/spin",
    "dm_control/reacher/easy",
    "dm_control/walker/walk",
]
# The number is a limit of steps; None where episodes end by themselves.
GYMNASIUM = [
    ("Acrobot-v1", 15),
    ("Blackjack-v1", None),
    ("CartPole-v1", None),
    ("CliffWalking-v1", 15),
    ("FrozenLake-v1", None),
    ("Hopper-v5", None),
    ("MountainCarContinuous-v0", 15),
    ("Pendulum-v1", 15),
    ("Reacher-v5", 15),
]
STEPS = 40


def make_gymnasium(environment_id, max_steps):
    limit = {} if max_steps is None else {"max_episode_steps": max_steps}
    return gymnasium.make(environment_id, disable_env_checker=True, **limit)


@pytest.mark.parametrize(("environment_id", "max_steps"), GYMNASIUM)
def test_gymnasium_environments_pass_dm_envs_checker(check_dm_env, environment_id, max_steps):
    check_dm_env(lambda: environments.GymnasiumEnvironment(make_gymnasium(environment_id, max_steps), seed=0))


@pytest.mark.parametrize("environment_id", DM_CONTROL)
def test_dm_control_in_gymnasium_and_back_passes_dm_envs_checker(check_dm_env, environment_id):
    def make():
        inner = environments.make(environment_id, 0, time_limit=0.2)
        return environments.GymnasiumEnvironment(environments.GymnasiumFromDmEnv(inner), seed=0)

    check_dm_env(make)


def make_checked(make, render_mode=None):
    return environments.GymnasiumFromDmEnv(make(), render_mode=render_mode)


def check_gymnasium(make, **settings):
    """Runs Gymnasium's checker on an environment with a spec, with which it tries all render modes."""
    spec = registration.EnvSpec(id="Checked-v0", entry_point=make_checked, kwargs={"make": make})
    environment = gymnasium.make(spec, disable_env_checker=True).unwrapped
    env_checker.check_env(environment, **settings)
    environment.close()


# What the checker says of environments without bounds, which these are.
UNBOUNDED = pytest.mark.filterwarnings(r"ignore:.*A Box observation space (min|max)imum value is -?infinity")


@UNBOUNDED
@pytest.mark.parametrize("environment_id", DM_CONTROL)
def test_dm_control_tasks_pass_gymnasiums_checker_rendering_included(environment_id):
    check_gymnasium(lambda: environments.make(environment_id, 0))


@UNBOUNDED
@pytest.mark.filterwarnings("ignore:.*For Box action spaces, we recommend")
@pytest.mark.parametrize(("environment_id", "max_steps"), GYMNASIUM)
def test_gymnasium_in_dm_env_and_back_passes_gymnasiums_checker(environment_id, max_steps):
    # Pictures of those that are not MuJoCo's need pygame.
    mode = "rgb_array" if environment_id.endswith("-v5") else None

    def make():
        return environments.GymnasiumEnvironment(environment_id, render_mode=mode)

    check_gymnasium(make, skip_render_check=mode is None)


@UNBOUNDED
def test_a_nested_environment_with_integers_passes_gymnasiums_checker():
    class Seeded(testing.FakeEnvironment):
        def seed(self, seed):
            self._random = np.random.default_rng(seed)

    unit = specs.BoundedArray((2,), np.float32, -1, 1)
    nest = {"a": (unit, specs.DiscreteArray(3)), "b": specs.BoundedArray((2,), np.int16, -1, 5)}
    check_gymnasium(lambda: Seeded(observation_spec=nest, action_spec=nest))


def play_gymnasium(environment, seed, actions):
    """Everything that Gymnasium's interface gives in STEPS steps."""
    record = [environment.reset(seed=seed)[0]]
    for action in actions:
        observation, reward, terminated, truncated, _ = environment.step(action)
        record += [observation, reward, terminated, truncated]
        if terminated or truncated:
            record.append(environment.reset()[0])
    return record


@pytest.mark.parametrize(("environment_id", "max_steps"), GYMNASIUM)
def test_gymnasium_to_dm_env_and_back_is_the_same_trajectory(environment_id, max_steps):
    direct = make_gymnasium(environment_id, max_steps)
    back = environments.GymnasiumFromDmEnv(
        environments.GymnasiumEnvironment(make_gymnasium(environment_id, max_steps))
    )
    assert back.observation_space == direct.observation_space
    assert back.action_space == direct.action_space
    assert back.metadata["render_fps"] == pytest.approx(direct.metadata["render_fps"])
    direct.action_space.seed(0)
    actions = [direct.action_space.sample() for _ in range(STEPS)]
    np.testing.assert_equal(play_gymnasium(back, 3, actions), play_gymnasium(direct, 3, actions))


def play_dm_env(environment, actions):
    """Every timestep of the episodes that the actions lead through, with plain dicts and numbers."""
    timesteps = [environment.step(action) for action in actions]
    return [timestep._replace(observation=dict(timestep.observation)) for timestep in timesteps]


@pytest.mark.parametrize("environment_id", DM_CONTROL)
def test_dm_control_to_gymnasium_and_back_is_the_same_trajectory(environment_id, sample_action):
    direct = environments.make(environment_id, 3, time_limit=0.3)
    # The first reset, by GymnasiumEnvironment, hands the seed through both.
    inner = environments.make(environment_id, 0, time_limit=0.3)
    back = environments.GymnasiumEnvironment(environments.GymnasiumFromDmEnv(inner), seed=3)
    for spec, spec_back in (
        (direct.action_spec(), back.action_spec()),
        *((spec, back.observation_spec()[name]) for name, spec in direct.observation_spec().items()),
    ):
        assert spec_back == spec
    random = np.random.default_rng(0)
    actions = [sample_action(direct.action_spec(), random) for _ in range(STEPS)]
    found, expected = play_dm_env(back, actions), play_dm_env(direct, actions)
    assert sum(timestep.last() for timestep in expected) >= 1
    np.testing.assert_equal(found, expected)
