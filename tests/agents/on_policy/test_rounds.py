"""Rollouts of several actors are learned from in whole rounds of one version."""

import itertools
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from minerva_acme import replay as stores
from minerva_acme import specs, types
from minerva_acme.agents import acting
from minerva_acme.agents.on_policy import rounds
from minerva_acme.replay import base as replay
from minerva_acme.replay import dataset as dataset_module

pytestmark = pytest.mark.promise("PPO and V-MPO learn from complete rounds of one version of the weights")

T = 3  # steps of a rollout


class Items(replay.Sampler):
    """Gives items in their order: (actor, version of each step, reward)."""

    def __init__(self, items: list[tuple[int, list[int], float]]) -> None:
        self.items = items
        self.closed = False

    def sample_batch(
        self, batch_size: int, timeout_seconds: float | None = None
    ) -> tuple[replay.SampleInfo, dict[str, Any]]:
        if len(self.items) < batch_size:
            raise replay.ReplayTimeout("no more")
        taken, self.items = self.items[:batch_size], self.items[batch_size:]
        keys = np.array([reward for _, _, reward in taken], np.uint64)
        stamps = np.array([[[actor, version] for version in versions] for actor, versions, _ in taken])
        rewards = np.array([[reward] * T for _, _, reward in taken], np.float32)
        nothing = np.zeros(batch_size)
        info = replay.SampleInfo(keys, nothing, nothing, nothing, nothing)
        return info, {"stamp": stamps, "reward": rewards}

    def close(self) -> None:
        self.closed = True


def unpack(fields: Mapping[str, torch.Tensor]) -> types.Rollout:
    rewards = fields["reward"].transpose(0, 1)
    stamped = rounds.Stamped({"log_prob": -rewards}, fields["stamp"].transpose(0, 1))
    return types.Rollout(*[rewards] * 8, extras=stamped)


def dataset(
    items: list[tuple[int, list[int], float]], num_actors: int = 2, each: int = 2
) -> rounds.RoundDataset:
    return rounds.RoundDataset(Items(items), unpack, num_actors=num_actors, rollouts_each=each)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def all_of(version: int) -> list[int]:
    return [version] * T


def test_a_round_has_the_rollouts_of_all_actors_in_their_order(random: np.random.Generator) -> None:
    items = [(actor, all_of(7), float(10 * actor + index)) for actor in range(3) for index in range(2)]
    order = random.permutation(len(items))
    found = dataset([items[place] for place in order], num_actors=3)
    found.version = 7
    sample = next(found)
    by_actor = [[items[place][2] for place in order if items[place][0] == actor] for actor in range(3)]
    assert sample.data.reward[0].tolist() == list(itertools.chain(*by_actor))
    assert sample.data.reward.shape == (T, 6)
    assert torch.equal(sample.data.extras["log_prob"], -sample.data.reward)  # the stamps are taken off
    assert sample.info.key.tolist() == sample.data.reward[0].tolist()
    assert found.num_stale == found.num_surplus == 0


def test_rollouts_of_another_version_are_dropped_and_counted() -> None:
    found = dataset(
        [(0, all_of(4), 1.0), (1, all_of(5), 2.0), (0, [4, 4, 5], 3.0), (1, all_of(6), 4.0)], each=1
    )
    found.version = 5
    # The last action tells the version: an environment may be ahead by some steps when a round ends.
    assert next(found).data.reward[0].tolist() == [3.0, 2.0]
    assert found.num_stale == 1
    found.version = 6
    with pytest.raises(replay.ReplayTimeout):
        next(found)
    assert found.num_stale == 1


def test_what_an_actor_delivers_twice_is_dropped_and_counted() -> None:
    found = dataset([(0, all_of(1), float(n)) for n in range(5)] + [(1, all_of(1), float(n)) for n in (7, 8)])
    found.version = 1
    assert next(found).data.reward[0].tolist() == [0.0, 1.0, 7.0, 8.0]
    assert (found.num_surplus, found.num_stale) == (3, 0)


def test_half_a_round_waits_for_the_rest_unless_the_version_changes() -> None:
    items = Items([(0, all_of(1), 1.0), (0, all_of(1), 2.0)])
    found = rounds.RoundDataset(items, unpack, num_actors=2, rollouts_each=1)
    found.version = 1
    with pytest.raises(replay.ReplayTimeout):
        next(found)
    items.items = [(1, all_of(1), 3.0)]
    assert next(found).data.reward[0].tolist() == [1.0, 3.0]
    items.items = [(0, all_of(1), 4.0), (1, all_of(0), 5.0)]
    with pytest.raises(replay.ReplayTimeout):
        next(found)
    found.version = 2
    with pytest.raises(replay.ReplayTimeout):
        next(found)
    assert (found.num_surplus, found.num_stale) == (1, 2)
    found.close()
    assert items.closed


def test_numbers_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="must be >= 1, got 0 and 2"):
        dataset([], num_actors=0)


def test_a_queue_drops_nothing_and_tells_how_old_the_weights_of_each_step_are() -> None:
    restarted = 3 << rounds.STEP_BITS
    items = [(1, [restarted + 5] * 3, 1.0), (0, [restarted + 6, restarted + 7, restarted + 9], 2.0)]
    items += [(2, [(2 << rounds.STEP_BITS) + 12] * 3, 3.0)]  # by a learner that came further

    def unpack_behaviour(fields: Mapping[str, torch.Tensor]) -> types.Rollout:
        rollout = unpack(fields)
        return rollout._replace(
            extras=rollout.extras._replace(extras=acting.BehaviourExtras(log_prob=-rollout.reward))
        )

    sampler = Items(items)
    found = rounds.QueueDataset(dataset_module.Dataset(sampler, unpack_behaviour, batch_size=3, prefetch=0))
    found.version = restarted + 9
    data = next(found).data
    assert data.reward[0].tolist() == [1.0, 2.0, 3.0]
    assert data.extras.age.T.tolist() == [[4, 4, 4], [3, 2, 0], [3, 3, 3]]
    assert torch.equal(data.extras.log_prob, -data.reward)
    assert found.wait_seconds >= 0.0
    found.close()
    assert sampler.closed


@pytest.mark.parametrize("asynchronous", [False, True])
def test_actors_that_play_on_are_learned_from_as_one(
    agent: Any, continuous_spec: specs.EnvironmentSpec, asynchronous: bool
) -> None:
    alone = agent.builder(num_environments=2, rollout_steps=16, asynchronous=asynchronous)
    builder = alone.for_actors(3)
    server = stores.MemoryServer(builder.make_replay_tables(continuous_spec), seed=0)
    adder = builder.make_adder(server.client(), continuous_spec)
    assert adder.in_rounds != asynchronous
    found = builder.make_dataset(server.client(), continuous_spec, torch.device("cpu"))
    assert isinstance(found, rounds.QueueDataset if asynchronous else rounds.RoundDataset)
    assert builder.num_learner_steps(16 * 6) == (6 if asynchronous else 2)
    assert ("of each of 3 actors" in builder.learner_step) != asynchronous
    # Writers that wait write no old rollouts: two batches are in the queue at most.
    (table,) = builder.make_replay_tables(continuous_spec)
    assert table.max_size == table.rate_limiter.capacity == (4 if asynchronous else 24)
    found.close()


class Tape:
    """Remembers what it is called with; an adder as far as it goes."""

    num_inserted = 5

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, *arguments))


def test_every_step_is_stamped_by_who_made_it() -> None:
    tape = Tape()
    adder = rounds.StampingAdder(tape)  # type: ignore[arg-type]
    adder.stamp = (3, (1 << 40) | 17)
    adder.add("action", "timestep", "extras")  # type: ignore[arg-type]
    ((name, action, timestep, stamped),) = tape.calls
    assert (name, action, timestep, stamped.extras) == ("add", "action", "timestep", "extras")
    assert stamped.stamp.tolist() == [3, (1 << 40) | 17]
    assert rounds.stamped_spec(()).stamp.validate(stamped.stamp) is not None
    assert adder.num_inserted == 5
    adder.reset(), adder.flush(), adder.close()
    assert [call[0] for call in tape.calls[1:]] == ["reset", "flush", "close"]


def test_the_time_that_a_round_waits_for_rollouts_is_measured() -> None:
    class Slow(Items):
        def sample_batch(self, *arguments: Any, **options: Any) -> Any:
            time.sleep(0.05)
            return super().sample_batch(*arguments, **options)

    items = [(actor, [0] * T, float(index)) for index, actor in enumerate([0, 0, 1, 1])]
    found = rounds.RoundDataset(Slow(items), unpack, num_actors=2, rollouts_each=2)
    assert found.wait_seconds == 0.0
    next(found)
    waited = found.wait_seconds
    assert waited >= 0.05
    with pytest.raises(replay.ReplayTimeout):
        next(found)
    assert found.wait_seconds >= waited + 0.05
