"""Gymnasium's vectors in a batch: the same timesteps as in a vector of ours, in tensors."""

import gymnasium
import numpy as np
import pytest
import torch
import tree
from gymnasium import vector

from minerva_acme import environments, specs, testing
from minerva_acme.environments import task_actions

MODES = list(vector.AutoresetMode)
MID, LAST = 1, 2


class Nested(gymnasium.Wrapper):
    """Observations in a dict, one part in double precision, and discrete actions that count from 2."""

    def __init__(self, environment):
        super().__init__(environment)
        low, high = environment.observation_space.low, environment.observation_space.high
        self.observation_space = gymnasium.spaces.Dict(
            {"pole": gymnasium.spaces.Box(low.astype(float), high.astype(float), dtype=np.float64)}
        )
        self.action_space = gymnasium.spaces.Discrete(2, start=2)

    def step(self, action):
        observation, *rest = self.env.step(int(action) - 2)
        return ({"pole": observation.astype(float)}, *rest)

    def reset(self, **arguments):
        observation, info = self.env.reset(**arguments)
        return {"pole": observation.astype(float)}, info


def make_vector(mode, wrapper=lambda environment: environment, number=3):
    makers = [lambda: wrapper(gymnasium.make("CartPole-v1", max_episode_steps=12))] * number
    return vector.SyncVectorEnv(makers, autoreset_mode=mode)


class TestConformance(testing.BatchedEnvironmentConformance):
    def make_environment(self):
        return environments.make_gymnasium_batch(make_vector(MODES[1]), seed=0)


def test_the_tasks_actions_are_the_spaces_own_numbers():
    for make in (environments.GymnasiumVectorEnvironment, environments.make_gymnasium_batch):
        with make(make_vector(MODES[1], Nested)) as made:
            own, agents = task_actions.find(made), made.action_spec()
        assert (own.shape, own.minimum, own.maximum) == ((), 2, 3)
        assert task_actions.TaskActions(agents, own)(np.int32(1)) == 3


@pytest.mark.parametrize("wrapper", [Nested, lambda environment: environment], ids=["nested", "plain"])
@pytest.mark.parametrize("mode", MODES)
def test_a_batch_has_the_timesteps_of_a_vector(mode, wrapper):
    ordinary = environments.GymnasiumVectorEnvironment(make_vector(mode, wrapper), seed=5)
    batch = environments.make_gymnasium_batch(make_vector(mode, wrapper), seed=5)
    with ordinary, batch:
        assert specs.make_environment_spec(batch) == specs.make_environment_spec(ordinary)
        assert batch.resets_in_next_step == (mode == MODES[0])
        rows = [[timestep] for timestep in ordinary.reset()]
        found, random = batch.reset(), np.random.default_rng(0)
        num_ended = 0
        for _ in range(40):
            for index, timesteps in enumerate(rows):
                own = [
                    tree.map_structure(lambda leaf, at=index: leaf[at].numpy(), nest)
                    for nest in (found.observation, found.newest)
                ]
                testing.assert_nests_equal(own, [timesteps[0].observation, timesteps[-1].observation])
                assert found.step_type[index] == timesteps[0].step_type
                if timesteps[0].reward is not None:
                    assert found.reward[index] == timesteps[0].reward
                    assert found.discount[index] == timesteps[0].discount
                num_ended += bool(found.step_type[index] == LAST)
            actions = random.integers(0, 2, 3)
            rows, found = ordinary.step(list(actions)), batch.step(torch.from_numpy(actions))
        assert num_ended >= 6


def test_a_vector_that_loses_last_observations_or_says_no_mode_is_refused():
    class Forgets(vector.VectorWrapper):
        def step(self, actions):
            return (*self.env.step(actions)[:4], {"other": 1})

    batch = environments.make_gymnasium_batch(Forgets(make_vector(MODES[1])))
    batch.reset()
    with batch, pytest.raises(specs.SpecError, match=r"SyncVectorEnv must hold `final_obs`.*\['other'\]"):
        for _ in range(13):
            batch.step(torch.zeros(3, dtype=torch.int64))
    several = make_vector(MODES[0])
    several.reward_space = gymnasium.spaces.Box(0, 1, (2,))
    with pytest.raises(ValueError, match="must have one reward, got 2 .*GymnasiumVectorEnvironment"):
        environments.make_gymnasium_batch(several)
    silent = make_vector(MODES[0])
    silent.metadata = {}
    with pytest.raises(ValueError, match="must have `metadata\\['autoreset_mode'\\]`"):
        environments.make_gymnasium_batch(silent)
