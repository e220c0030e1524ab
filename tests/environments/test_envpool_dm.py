"""EnvPool's dm_env form, by a pool that behaves as EnvPool's do, and by EnvPool where it is installed."""

import collections
from typing import Any

import dm_env
import numpy as np
import pytest
from dm_env import specs

from minerva_acme import environments, testing

State = collections.namedtuple("State", ["env_id", "players", "obs"])
Players = collections.namedtuple("Players", ["env_id"])
TINY = np.finfo(np.float64).tiny


class Pool(dm_env.Environment):
    """Episodes of random length; a time limit is told as a true end, as by EnvPool's own CartPole."""

    def __init__(self, num_envs=3, limit=6, **config):
        self.config: dict[str, Any] = {"num_envs": num_envs, "batch_size": num_envs, "max_num_players": 1}
        self.config |= {"max_episode_steps": limit, **config}
        self.random = np.random.default_rng(0)
        self.lengths = np.zeros(num_envs, np.int64)
        self.ended = np.ones(num_envs, bool)
        self.actions = []
        self.num_closed = 0

    def observation_spec(self):
        of = specs.BoundedArray((), np.int32, -100, 100)
        obs = specs.BoundedArray((2,), np.float64, TINY, 1.8e308, name="obs")
        return State(env_id=of, players=Players(of), obs=obs)

    def action_spec(self):
        return specs.BoundedArray((2,), np.float64, -1.0, 1.0, name="action")

    def reset(self):
        self.ended[:] = True
        return self._move()

    def step(self, action):
        self.actions.append(action)
        return self._move()

    def close(self):
        self.num_closed += 1

    def _move(self):
        first, number = self.ended, len(self.lengths)
        self.lengths = np.where(first, 0, self.lengths + 1)
        last = ~first & (
            (self.lengths == self.config["max_episode_steps"]) | (self.random.random(number) < 0.2)
        )
        self.ended = last
        ids = np.arange(number, dtype=np.int32)
        return dm_env.TimeStep(
            step_type=np.where(first, 0, np.where(last, 2, 1)).astype(np.int32),
            reward=np.where(first, 0.0, self.lengths).astype(np.float32),
            discount=np.where(last, 0.0, 1.0).astype(np.float32),
            observation=State(ids, Players(ids), self.random.normal(size=(number, 2))),
        )


class TestPool(testing.VectorEnvironmentConformance):
    def make_environment(self):
        return environments.EnvPoolEnvironment(Pool())


class TestEnvPool(testing.VectorEnvironmentConformance):
    def make_environment(self):
        envpool = pytest.importorskip("envpool")
        pool = envpool.make("CartPole-v1", env_type="dm", num_envs=2, seed=0, max_episode_steps=12)
        return environments.EnvPoolEnvironment(pool)


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting")
class TestEnvPoolOfGymnasiumsForm(testing.VectorEnvironmentConformance):
    def make_environment(self):
        envpool = pytest.importorskip("envpool")
        pool = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=2, seed=0, max_episode_steps=12)
        return environments.GymnasiumVectorEnvironment(pool)


def play(environment, num_steps):
    action = np.float32([0.5, -0.5])
    return [environment.step([action] * environment.num_environments) for _ in range(num_steps)]


def test_specs_are_of_what_the_task_shows_without_bounds_that_are_not_meant():
    environment = environments.EnvPoolEnvironment(Pool())
    assert environment.observation_spec() == specs.Array((2,), np.float32)
    assert environment.action_spec() == specs.BoundedArray((2,), np.float32, -1.0, 1.0)


def test_a_time_limit_keeps_its_discount_and_a_true_end_has_none():
    environment = environments.EnvPoolEnvironment(Pool(num_envs=4, limit=6))
    environment.reset()
    ends = collections.defaultdict(set)
    lengths = [0] * 4
    for arrived in play(environment, 200):
        for index, (timestep,) in enumerate(arrived):
            lengths[index] = 0 if timestep.first() else lengths[index] + 1
            if timestep.last():
                ends[lengths[index]].add(float(timestep.discount))
    assert {length: ends[length] for length in range(1, 7)} == {
        1: {0.0}, 2: {0.0}, 3: {0.0}, 4: {0.0}, 5: {0.0}, 6: {1.0},
    }  # fmt: skip


def test_actions_reach_the_pool_in_its_own_dtype():
    pool = Pool(num_envs=2)
    environment = environments.EnvPoolEnvironment(pool)
    environment.reset()
    environment.step([np.float32([0.5, -0.5]), np.float32([1.0, 0.0])])
    testing.assert_nests_equal(pool.actions, [np.array([[0.5, -0.5], [1.0, 0.0]])])
    assert pool.actions[0].dtype == np.float64


def test_the_pool_is_closed_once():
    pool = Pool()
    environments.EnvPoolEnvironment(pool).close()
    environment = environments.EnvPoolEnvironment(pool)
    environment.close()
    environment.close()
    assert pool.num_closed == 2


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (testing.FakeEnvironment(), "must be made by envpool.make.*got FakeEnvironment.*Gymnasium"),
        (Pool(num_envs=4, batch_size=2), "must step all of its environments.*got batch_size 2 of 4"),
        (Pool(max_num_players=2), "and 2 players"),
    ],
    ids=["no pool", "a part", "players"],
)
def test_what_cannot_be_a_vector_is_refused(pool, message):
    with pytest.raises(ValueError, match=message):
        environments.EnvPoolEnvironment(pool)
