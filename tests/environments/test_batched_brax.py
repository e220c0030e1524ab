"""Environments of Brax's kind in a batch, each compared with the formulas that it is made of."""

import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from minerva_acme import environments, specs, testing
from minerva_acme.environments import batched_brax

MID, LAST = 1, 2
B, LENGTH = 6, 7


def test_without_jax_an_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'minerva-acme\[playground\]'"):
        environments.BatchedBrax(object(), 2, episode_length=3, seed=0)


class State(NamedTuple):
    place: Any
    obs: Any
    reward: Any
    done: Any
    info: dict[str, Any]


class Walk:
    """A walk from a random place near 0, which ends beyond 1. It draws a push in every step."""

    action_size = 2

    def __init__(self, time_out=False):
        self.jax = pytest.importorskip(
            "jax", reason="jax is not installed: pip install 'minerva-acme[playground]'"
        )
        self.num_traces = 0
        self.time_out = time_out  # whether it says that falls are time limits, as some of Brax's do

    def reset(self, key):
        key, own = self.jax.random.split(key)
        place = self.jax.random.uniform(own, (3,), minval=-0.5, maxval=0.5)
        zero = self.jax.numpy.zeros(())
        # Python's numbers, whose dtypes JAX calls weak, are what environments often begin with.
        return State(place, self.observe(place, key), 0.0, False, {"key": key, "time_out": zero, "last": 0.0})

    def step(self, state, action):
        self.num_traces += 1
        key, own = self.jax.random.split(state.info["key"])
        push = 0.1 + 0.3 * self.jax.random.uniform(own)
        place = state.place + self.jax.numpy.stack([push, action[0], action[1]])
        done = place[0] > 1.0
        info = {"key": key, "time_out": 1.0 * (done & self.time_out), "last": action[0]}
        return State(place, self.observe(place, key), place[0] * action[1], done, info)

    def observe(self, place, key):
        return {"place": place, "key": key[:1]}


class PlainWalk(Walk):
    """Shows only the place, as most agents want it."""

    def observe(self, place, key):
        return place


def make(seed=0, environment=None, number=B, **settings):
    settings = {"episode_length": LENGTH, **settings}
    return environments.BatchedBrax(environment or Walk(), number, seed=seed, **settings)


def draw_actions(number, seed=3):
    return 2.0 * torch.rand(number, B, 2, generator=torch.Generator().manual_seed(seed)) - 1.0


class TestConformance(testing.BatchedEnvironmentConformance):
    def make_environment(self):
        return make()


class TestConformanceWithoutTerminals(testing.BatchedEnvironmentConformance):
    num_steps = 8

    def make_environment(self):
        return make(episode_length=2)


@pytest.mark.parametrize("time_out", [False, True])
def test_every_episode_follows_the_environment_and_ends_as_it_does(time_out):
    walk = Walk(time_out)
    environment = make(environment=walk, episode_length=6)
    assert specs.make_environment_spec(environment).observations == {
        "place": specs.Array((3,), np.float32),
        "key": specs.Array((1,), np.uint32),
    }
    before, lengths = environment.reset(), np.zeros(B, int)
    firsts, ends = [*before.newest["place"].tolist()], {0.0: 0, 1.0: 0}
    for actions in draw_actions(60):
        timestep = environment.step(actions)
        lengths += 1
        for index in range(B):
            start, place = (each["place"][index].numpy() for each in (before.newest, timestep.observation))
            np.testing.assert_allclose(place[1:], start[1:] + actions[index].numpy(), atol=1e-6)
            assert 0.1 - 1e-6 <= place[0] - start[0] <= 0.4 + 1e-6
            np.testing.assert_allclose(timestep.reward[index], place[0] * actions[index, 1], atol=1e-6)
            is_terminal, is_last = place[0] > 1.0, place[0] > 1.0 or lengths[index] == 6
            assert timestep.step_type[index] == (LAST if is_last else MID)
            assert timestep.discount[index] == 1.0 - is_terminal  # also where the time is up, too
            if is_last:
                firsts.append(timestep.newest["place"][index].tolist())
                ends[float(timestep.discount[index])] += 1
                lengths[index] = 0
        before = timestep
    assert min(ends.values()) >= 10
    assert len(np.unique(firsts, axis=0)) == len(firsts) and np.abs(firsts).max() <= 0.5
    again = make(1, walk, episode_length=6)
    again.reset()
    again.step(actions)
    assert walk.num_traces == 1  # it was compiled once


def test_open_episodes_go_on_from_a_saved_state():
    def go_on(environment):
        return [environment.step(actions) for actions in draw_actions(30, seed=4)]

    environment = make(seed=5)
    unopened = testing.through_a_file(environment.save())
    first = environment.reset()
    for actions in draw_actions(9):
        environment.step(actions)
    saved = testing.through_a_file(environment.save())
    expected = go_on(environment)
    resumed = make(seed=6)
    resumed.restore(saved)
    testing.assert_nests_equal(go_on(resumed), expected)
    resumed.restore(unopened)
    with pytest.raises(ValueError, match="Call `reset`"):
        resumed.step(actions)
    testing.assert_nests_equal(resumed.reset(), first)


def test_seeds_give_other_episodes_and_so_does_another_reset():
    environment = make(seed=2**32 - 1)
    drawn = [environment.reset(), environment.reset(), make(seed=1).reset(), make(seed=2).reset()]
    assert len(np.unique([each.newest["place"].numpy() for each in drawn])) == 4 * B * 3


def test_tensors_share_the_memory_of_jax_and_actions_may_be_written_to(monkeypatch):
    environment, taken = make(), []
    share = torch.from_dlpack

    def spy(array):
        taken.append((array, share(array)))
        return taken[-1][1]

    monkeypatch.setattr(batched_brax.dlpack, "from_dlpack", spy)
    environment.reset()
    actions = draw_actions(1)[0]
    kept = actions.clone()
    environment.step(actions)
    assert [array.unsafe_buffer_pointer() for array, _ in taken] == [one.data_ptr() for _, one in taken]
    assert len(taken) == 2 + 7
    actions.zero_()
    (last,) = (leaf for leaf in environment.save()["leaves"] if torch.equal(leaf, kept[:, 0]))
    assert not torch.equal(last, actions[:, 0])


def test_wrong_numbers_are_refused():
    for length, seed, message in [
        (0, 0, "`episode_length` must be >= 1 step, got 0"),
        (1, -1, r"`seed` must be in \[0, 2\*\*32\), got -1"),
        (1, 2**32, "`seed` must be in"),
    ]:
        with pytest.raises(ValueError, match=message):
            make(seed, episode_length=length)


@pytest.fixture
def wrappers():
    return pytest.importorskip("brax.envs.wrappers.training", reason="Brax is not installed")


def test_an_environment_that_resets_by_itself_is_refused(wrappers):
    resetting = wrappers.wrap(Walk(), episode_length=5)
    with pytest.raises(ValueError, match="must not reset by itself, got one with AutoResetWrapper"):
        make(environment=resetting)


@pytest.mark.filterwarnings("ignore")
def test_a_time_limit_of_brax_is_one_and_a_vectorized_environment_is_taken_as_it_is(wrappers):
    from brax import envs

    inner = wrappers.EpisodeWrapper(envs.get_environment("fast"), episode_length=6, action_repeat=2)
    alone, vectorized = (
        make(environment=each, episode_length=100) for each in (inner, wrappers.VmapWrapper(inner))
    )
    found = [alone.reset()], [vectorized.reset()]
    for actions in torch.rand(7, B, 1, generator=torch.Generator().manual_seed(0)) - 0.5:
        for each, environment in zip(found, (alone, vectorized), strict=True):
            each.append(environment.step(actions))
    testing.assert_nests_equal(found[1], found[0])
    ends = torch.stack([timestep.step_type == LAST for timestep in found[0]])
    assert ends.nonzero()[:, 0].unique().tolist() == [3, 6] and int(ends.sum()) == 2 * B
    assert all(bool((timestep.discount == 1.0).all()) for timestep in found[0])
