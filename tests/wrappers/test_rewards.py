"""Rewards of several numbers, from an environment's nest to names, and from names to one sum."""

import dm_env
import gymnasium
import numpy as np
import pytest
import tree
from gymnasium import spaces

from minerva_acme import environments, specs, testing, wrappers
from minerva_acme.agents import mpo, ppo


class Nested(testing.FakeEnvironment):
    """Rewards that differ by leaf, element and step."""

    def __init__(self):
        super().__init__(
            reward_spec={"task": specs.Array((), np.float32), "effort": [specs.Array((2,), np.float64)]}
        )

    def step(self, action):
        timestep = super().step(action)
        if timestep.first():
            return timestep
        step = float(timestep.reward["task"])
        reward = {"task": np.float32(step), "effort": [np.array([10 * step, 0.1 * step])]}
        return timestep._replace(reward=reward)


class TwoRewards(gymnasium.Env):
    """A Gymnasium environment whose rewards are told by a `reward_space`, as MO-Gymnasium's are."""

    observation_space = spaces.Box(-9, 9, (1,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)
    reward_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.step_number += 1
        reward = np.array([self.step_number, -(float(action[0]) ** 2)])
        return np.ones(1, np.float32), reward, False, self.step_number == 3, {}


def step_twice(environment, size=2):
    assert environment.reset().reward is None
    action = np.full(size, 0.5, np.float32)
    return [environment.step(action).reward for _ in range(2)]


def test_each_number_of_a_nest_gets_the_name_of_its_place():
    environment = wrappers.SpecCheckWrapper(wrappers.NamedRewardsWrapper(Nested()))
    assert step_twice(environment) == [
        {"effort/0/0": 10.0 * step, "effort/0/1": 0.1 * step, "task": step} for step in (1, 2)
    ]
    spec = environment.reward_spec()
    assert [(leaf.name, leaf.dtype) for leaf in spec.values()] == [
        ("effort/0/0", np.float64),
        ("effort/0/1", np.float64),
        ("task", np.float32),
    ]


def test_the_weighted_sum_is_one_reward_of_an_agent_that_takes_one():
    weights = {"task": 1.0, "effort/0/0": -2.0, "effort/0/1": 0.5}
    environment = wrappers.ScalarRewardWrapper(Nested(), weights=weights)
    np.testing.assert_allclose(step_twice(environment), [1 - 20 + 0.05, 2 - 40 + 0.1])
    made = environments.make_training_environment(environment)
    ppo.PPOBuilder(ppo.PPOConfig()).check_spec(specs.make_environment_spec(made))
    assert environment.reward_spec().dtype == np.float64


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: wrappers.ScalarRewardWrapper(Nested(), weights={"task": 1.0, "cost": 1.0}),
            "one weight for each of effort/0/0, effort/0/1, task, got cost, task",
        ),
        (
            lambda: wrappers.ScalarRewardWrapper(
                wrappers.NamedRewardsWrapper(Nested()),
                weights={"task": 1.0, "effort/0/0": np.inf, "effort/0/1": 1.0},
            ),
            "must be finite, got inf for 'effort/0/0'",
        ),
        (lambda: wrappers.NamedRewardsWrapper(testing.FakeEnvironment()), "rewards of several numbers"),
        (
            lambda: wrappers.NamedRewardsWrapper(
                testing.FakeEnvironment(
                    reward_spec={"a/0": specs.Array((), np.float32), "a": specs.Array((1,), np.float32)}
                )
            ),
            "a name of its own, got a/0, a/0",
        ),
        (
            lambda: environments.GymnasiumEnvironment(TwoRewards(), reward_names=["speed", "speed"]),
            "`reward_names` must be 2 names.*got speed, speed",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_the_names(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_vector_of_gymnasium_becomes_named_rewards():
    plain = environments.GymnasiumEnvironment(gymnasium.wrappers.ClipAction(TwoRewards()))
    assert step_twice(plain, 1) == [{"0": 1.0, "1": -0.25}, {"0": 2.0, "1": -0.25}]
    names = ["speed", "energy"]
    named = environments.GymnasiumEnvironment(TwoRewards(), reward_names=names)
    made = environments.make_training_environment(named)
    assert step_twice(made, 1) == [{"speed": 1.0, "energy": -0.25}, {"speed": 2.0, "energy": -0.25}]
    assert made.reward_spec()["energy"].dtype == np.float32

    class Vector(gymnasium.vector.SyncVectorEnv):
        reward_space = TwoRewards.reward_space

        def __init__(self):
            super().__init__([TwoRewards] * 2)
            self._rewards = np.zeros((2, 2))

    vector = environments.GymnasiumVectorEnvironment(Vector(), reward_names=names)
    vector.reset()
    arrived = vector.step([np.full(1, action, np.float32) for action in (0.5, 1.0)])
    assert [timestep.reward for (timestep,) in arrived] == [
        {"speed": 1.0, "energy": -0.25},
        {"speed": 1.0, "energy": -1.0},
    ]
    tree.map_structure(lambda spec: specs.check_conforms("reward", np.float32(0), spec), vector.reward_spec())


def test_a_gymnasium_wrapper_that_sums_in_secret_is_told_of_with_the_way_out():
    class Summed(gymnasium.Wrapper):
        def step(self, action):
            observation, reward, *rest = self.env.step(action)
            return observation, reward.sum(), *rest

    environment = environments.GymnasiumEnvironment(Summed(TwoRewards()))
    environment.reset()
    with pytest.raises(specs.SpecError, match="2 numbers.*ScalarRewardWrapper"):
        environment.step(np.zeros(1, np.float32))


def test_agents_that_take_one_reward_name_the_wrapper():
    spec = specs.make_environment_spec(environments.make_training_environment(Nested()))
    assert sorted(spec.rewards) == ["effort/0/0", "effort/0/1", "task"]
    for builder in (ppo.PPOBuilder(ppo.PPOConfig()), mpo.MPOBuilder(mpo.MPOConfig())):
        with pytest.raises(ValueError, match="ScalarRewardWrapper"):
            builder.check_spec(spec)


def test_the_loop_tells_the_return_of_each_name():
    environment = environments.make_training_environment(
        environments.GymnasiumEnvironment(TwoRewards(), reward_names=["speed", "energy"])
    )
    loop = environments.EnvironmentLoop(
        environment=environment, actor=testing.FakeActor(np.ones(1, np.float32))
    )
    result = loop.run_episode()
    assert (result["episode_return/speed"], result["episode_return/energy"]) == (6.0, -3.0)
    assert isinstance(environment, dm_env.Environment)
