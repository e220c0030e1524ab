"""EnvPool in a batch, by a pool that behaves as EnvPool's do, and by EnvPool where it is installed."""

import zlib

import gymnasium
import numpy as np
import pytest
import torch
import tree
from gymnasium import spaces, vector

from minerva_acme import environments, testing

FIRST, LAST = 0, 2
UNBOUNDED = spaces.Box(-np.inf, np.inf, (2,), np.float64)


class Pool(vector.VectorEnv):
    """Episodes of random lengths with both ends; a masked reset returns the rows of the mask alone."""

    def __init__(self, number=3, **config):
        self.num_envs = number
        self.config = {"num_envs": number, "batch_size": number, "max_num_players": 1, **config}
        self.metadata = {"autoreset_mode": vector.AutoresetMode.NEXT_STEP}
        self.single_observation_space = spaces.Dict({"pole": UNBOUNDED})
        self.single_action_space = spaces.Box(-1.0, 1.0, (2,), np.float64)
        self.random = [np.random.default_rng(index) for index in range(number)]
        self.has_ended = np.ones(number, bool)

    def reset(self, *, seed=None, options=None):
        assert seed is None
        rows = np.flatnonzero((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))
        self.has_ended[rows] = False
        return self._observe(rows), {"env_id": rows.astype(np.int32)}

    def step(self, actions):
        assert actions.dtype == np.float64
        resets, rows = self.has_ended, np.arange(self.num_envs)
        observation = self._observe(rows)
        drawn = zip(resets, self.random, strict=True)
        ends = np.array([not first and random.choice(3, p=[0.7, 0.15, 0.15]) for first, random in drawn])
        terminated, truncated = ends == 1, ends == 2
        self.has_ended = terminated | truncated
        reward = np.where(resets, 0.0, actions.sum(-1))
        return observation, reward, terminated, truncated, {"env_id": rows.astype(np.int32)}

    def _observe(self, rows):
        return {"pole": np.stack([self.random[row].normal(size=2) for row in rows])}


def make_pool(task):
    if task is None:
        return Pool()
    envpool = pytest.importorskip("envpool")
    return envpool.make(task, env_type="gymnasium", num_envs=3, seed=5, max_episode_steps=12)


class TestPool(testing.BatchedEnvironmentConformance):
    def make_environment(self):
        return environments.make_gymnasium_batch(Pool())


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting")
@pytest.mark.filterwarnings("ignore:.*precision lowered by casting")
class TestEnvPoolAsVector(testing.VectorEnvironmentConformance):
    def make_environment(self):
        envpool = pytest.importorskip("envpool")
        pool = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=2, seed=0, max_episode_steps=12)
        return environments.GymnasiumVectorEnvironment(pool)


class TestEnvPool(testing.BatchedEnvironmentConformance):
    def make_environment(self):
        return environments.make_gymnasium_batch(make_pool("CartPole-v1"))


def act(spec, observation):
    """Chooses a random action that depends on the observation alone."""
    content = b"".join(np.ascontiguousarray(leaf).tobytes() for leaf in tree.flatten(observation))
    random = np.random.default_rng(zlib.crc32(content))
    return spec.dtype.type(random.integers(2) if not spec.shape else random.uniform(-1, 1, spec.shape))


def item(step_type, reward, discount, observation):
    return int(step_type), float(reward or 0), float(1 if discount is None else discount), observation


def play_vector(pool, num_steps):
    """Returns the timesteps of each environment."""
    played = [[] for _ in range(3)]
    with environments.GymnasiumVectorEnvironment(pool) as environment:
        spec, newest = environment.action_spec(), environment.reset()
        for _ in range(num_steps):
            for own, timestep in zip(played, newest, strict=True):
                own.append(item(*timestep))
            rows = environment.step([act(spec, timestep.observation) for timestep in newest])
            newest = [timestep for (timestep,) in rows]
    return played


def play_batch(pool, num_steps):
    """Returns the timesteps of each environment."""
    played = [[] for _ in range(3)]
    with environments.make_gymnasium_batch(pool) as environment:
        assert not environment.resets_in_next_step and environment.gives_last_observation
        spec, timestep = environment.action_spec(), environment.reset()
        for _ in range(num_steps):
            arrays = tree.map_structure(lambda leaf: leaf.numpy(), timestep)
            rows = [tree.map_structure(lambda leaf, at=index: leaf[at, ...], arrays) for index in range(3)]
            for own, row in zip(played, rows, strict=True):
                own.append(item(*row[:4]))
                if row.step_type == LAST:
                    own.append(item(FIRST, 0, 1, row.newest))
            actions = np.stack([act(spec, row.newest) for row in rows])
            timestep = environment.step(torch.from_numpy(actions))
    return played


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting")
@pytest.mark.parametrize("task", [None, "CartPole-v1", "Pendulum-v1"])
def test_a_batch_has_the_timesteps_of_a_vector_and_resets_in_the_same_call(task):
    expected, found = play_vector(make_pool(task), 60), play_batch(make_pool(task), 60)
    lengths, discounts = [], []
    for one, other in zip(expected, found, strict=True):
        assert len(other) > len(one) == 60
        testing.assert_nests_equal(other[:60], one)
        lasts = [index for index, (step_type, *_) in enumerate(one) if step_type == LAST]
        lengths.extend(np.diff([-1, *lasts]) - 1)
        discounts += [one[index][2] for index in lasts]
    if task == "Pendulum-v1":
        assert set(lengths) == {12} and set(discounts) == {1.0}
    else:
        assert len(set(lengths)) > 3 and set(discounts) == {0.0, 1.0}
    if task == "CartPole-v1":
        assert {12} == {length for length, own in zip(lengths, discounts, strict=True) if own == 1.0}


def test_a_pool_in_a_wrapper_resets_in_the_next_step():
    wrapped = gymnasium.wrappers.vector.RecordEpisodeStatistics(Pool())
    with environments.make_gymnasium_batch(wrapped) as environment:
        assert environment.resets_in_next_step


class DmPool:
    config = Pool().config


@pytest.mark.parametrize(
    ("pool", "seed", "message"),
    [
        (DmPool(), None, "must be one of Gymnasium's, or.*env_type='gymnasium'.*got DmPool"),
        (Pool(number=4, batch_size=2), None, "must step all of its environments.*got batch_size 2 of 4"),
        (gymnasium.wrappers.vector.RecordEpisodeStatistics(Pool(max_num_players=2)), None, "and 2 players"),
        (Pool(), 3, "`seed` must be None for a pool.*got 3. Pass it to envpool.make"),
    ],
    ids=["other form", "a part", "players in a wrapper", "seed"],
)
def test_what_cannot_be_a_batch_is_refused(pool, seed, message):
    with pytest.raises(ValueError, match=message):
        environments.make_gymnasium_batch(pool, seed=seed)
