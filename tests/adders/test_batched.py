"""The batched adder: what is cut from its ring is, item for item, what ordinary adders write."""

import itertools

import dm_env
import numpy as np
import pytest
import torch
import tree

from minerva_acme import adders, specs, testing
from minerva_acme.agents import acting
from minerva_acme.replay import base as replay
from minerva_acme.replay import layouts
from minerva_acme.replay.dataset import Dataset
from minerva_acme.replay.memory import MemoryServer

FIRST, LAST = int(dm_env.StepType.FIRST), int(dm_env.StepType.LAST)
B, GAMMA, TABLE = 7, 0.9, "steps"
STARTING_ROWS = 13
MANY = 1_000_000


class Case:
    """Kinds of items: how the ring is read, and the ordinary adder that writes the same ones."""

    def __init__(self, kind, length, period=1):
        self.kind, self.length, self.period = kind, length, period

    def __repr__(self):
        return f"{self.kind}-{self.length}-{self.period}"

    def batched_layout(self, spec, extras):
        if self.kind == "transitions":
            return layouts.BatchedTransitionLayout(spec, extras, n_step=self.length, discount=GAMMA)
        make = layouts.BatchedTrajectoryLayout if self.kind == "sequences" else layouts.BatchedRolloutLayout
        return make(spec, self.length, extras)

    def ring_config(self, layout):
        by_episode = self.kind != "rollouts"
        starting = STARTING_ROWS if by_episode else 4 * self.length
        period = self.period if by_episode else self.length
        max_size = starting * B // period
        return replay.TableConfig(
            name=TABLE,
            signature=layout.signature,
            max_size=max_size,
            rate_limiter=replay.MinSize(1) if by_episode else replay.Queue(max_size),
            sampler=replay.Uniform() if by_episode else replay.Fifo(),
            max_times_sampled=0 if by_episode else 1,
            ring=replay.Ring(B, period, by_episode),
        )

    def layout(self, spec, extras):
        if self.kind == "transitions":
            return layouts.TransitionLayout(spec, extras)
        make = layouts.TrajectoryLayout if self.kind == "sequences" else layouts.RolloutLayout
        return make(spec, self.length, extras)

    def adder(self, client, layout):
        arguments = {"client": client, "table": TABLE, "layout": layout}
        if self.kind == "transitions":
            return adders.NStepTransitionAdder(**arguments, n_step=self.length, discount=GAMMA)
        if self.kind == "sequences":
            return adders.SequenceAdder(**arguments, period=self.period)
        return adders.RolloutAdder(**arguments, discount=GAMMA)


BY_EPISODE = [
    Case("transitions", 1),
    Case("transitions", 4),
    Case("sequences", 5),
    Case("sequences", 5, 3),
]


class Play:
    """A batched environment that is played with random actions, and all that happened in it."""

    def __init__(self, resets_in_next_step=False, seed=0, device="cpu"):
        generator = torch.Generator().manual_seed(seed) if device == "cpu" else None
        self.environment = testing.FakeBatchedEnvironment(
            B, resets_in_next_step=resets_in_next_step, generator=generator, device=device
        )
        self.spec = specs.make_environment_spec(self.environment)
        self.extras = acting.extras_spec(self.spec)
        self.device = device
        self.random = torch.Generator().manual_seed(seed + 1)
        self.calls = []  # (timestep, actions, extras); no actions at a reset
        self.begin()

    def begin(self):
        self.calls.append((self.environment.reset(), None, None))

    def step(self):
        actions = (2.0 * torch.rand(B, 2, generator=self.random) - 1.0).to(self.device)
        log_prob = torch.randn(B, generator=self.random).to(self.device)
        extras = acting.BehaviourExtras(log_prob, 3.0 * actions)
        self.calls.append((self.environment.step(actions), actions, extras))


def write(adder, calls):
    for timestep, actions, extras in calls:
        if actions is None:
            adder.reset()
            adder.add_first(timestep)
        else:
            adder.add(actions, timestep, extras)


def write_alone(adder, index, calls):
    """Writes one environment's timesteps, as an ordinary loop would."""

    def row(nest):
        return tree.map_structure(lambda leaf: leaf[index].numpy(), nest)

    for timestep, actions, extras in calls:
        if actions is None:
            adder.reset()
        elif int(timestep.step_type[index]) != FIRST:
            is_last = int(timestep.step_type[index]) == LAST
            step_type = dm_env.StepType.LAST if is_last else dm_env.StepType.MID
            numbers = (row(timestep.reward)[()], row(timestep.discount)[()])
            adder.add(
                row(actions),
                dm_env.TimeStep(step_type, *numbers, row(timestep.observation)),
                tree.map_structure(lambda leaf: leaf[()], row(extras)),
            )
            if is_last and not torch.equal(timestep.newest, timestep.observation):
                adder.add_first(dm_env.restart(row(timestep.newest)))
            continue
        adder.add_first(dm_env.restart(row(timestep.newest)))


def ordinary_items(case, play, calls, *, then_reset=False):
    layout = case.layout(play.spec, play.extras)
    config = replay.TableConfig(
        name=TABLE,
        signature=layout.signature,
        max_size=MANY,
        rate_limiter=replay.Queue(MANY),
        sampler=replay.Fifo(),
        max_times_sampled=1,
    )
    with MemoryServer([config], seed=0) as server:
        client = server.client()
        ones = [case.adder(client, layout) for _ in range(B)]
        for number, call in enumerate(calls):  # in turns, as the environments of a loop
            for index, adder in enumerate(ones):
                write_alone(adder, index, [call])
            if then_reset and number == len(calls) - 1:
                for adder in ones:
                    adder.reset()
        items = testing.read_items(client, TABLE, layout.unpack)
        for adder in ones:
            adder.close()
    return items


def batched_items(client, layout, num_draws=2500):
    """All items that can be sampled from a ring, by the observation that each begins with."""
    with client.sampler(TABLE) as sampler:
        _, fields = sampler.sample_batch(num_draws)
    batch = tree.map_structure(torch.Tensor.numpy, layout.unpack(fields))
    begun = batch.observation.reshape(num_draws, -1)[:, :3]
    _, indices = np.unique(begun, axis=0, return_index=True)
    items = [tree.map_structure(lambda leaf, index=index: leaf[index], batch) for index in indices]
    return {key(item): item for item in items}


def key(item):
    return tuple(np.atleast_2d(item.observation)[0].tolist())


def begun_in(calls, first, end):
    """The observations that environments acted on in the calls `first` to `end`, not counting resets."""
    keys, call = set(), 0
    for (before, _, _), (_, actions, _) in itertools.pairwise(calls):
        if actions is not None:
            if first <= call < end:
                keys |= {tuple(row) for row in before.newest.tolist()}
            call += 1
    return keys


def make_ring(case, play, **settings):
    layout = case.batched_layout(play.spec, play.extras)
    server = MemoryServer([case.ring_config(layout)], seed=1, **settings)
    client = server.client(timeout_seconds=0.2)
    return (
        client,
        layout,
        adders.BatchedAdder(client=client, table=TABLE, layout=layout, period=case.period, discount=GAMMA),
    )


@pytest.mark.parametrize("resets_in_next_step", [False, True])
@pytest.mark.parametrize("case", BY_EPISODE, ids=repr)
def test_a_ring_holds_the_items_that_ordinary_adders_write(case, resets_in_next_step):
    play = Play(resets_in_next_step)
    client, layout, adder = make_ring(case, play)
    num_written = 0

    def check(then_reset, end):
        nonlocal num_written
        write(adder, play.calls[num_written:])
        num_written = len(play.calls)
        if then_reset:
            adder.reset()
        kept = begun_in(play.calls, end - STARTING_ROWS, end)
        expected = {
            key(item): item
            for item in ordinary_items(case, play, play.calls, then_reset=then_reset)
            if key(item) in kept
        }
        found = batched_items(client, layout)
        assert found.keys() == expected.keys()
        assert len(found) >= (B if end < 3 else STARTING_ROWS * B // (3 * case.period))
        for name, item in found.items():
            testing.assert_nests_equal(item, expected[name])

    for _ in range(case.length + 1):
        play.step()
    check(then_reset=False, end=2)
    for _ in range(18):
        play.step()
    num_steps = 19 + case.length
    check(then_reset=False, end=num_steps - case.length + 1)
    check(then_reset=True, end=num_steps)  # nothing is lost where all episodes are cut
    play.begin()
    play.step()
    check(then_reset=False, end=max(num_steps, num_steps + 2 - case.length))


def test_a_ring_holds_the_rollouts_that_ordinary_adders_write():
    case = Case("rollouts", 3)
    play = Play()
    client, layout, adder = make_ring(case, play)
    found = []
    with client.sampler(TABLE) as sampler:
        for number in range(1, 18):
            play.step()
            write(adder, play.calls[number - 1 + bool(number > 1) :][: 1 + bool(number == 1)])
            while client.table_info(TABLE).size >= B:
                batch = layout.unpack(sampler.sample_batch(B)[1])
                found += [
                    tree.map_structure(lambda leaf, index=index: leaf[:, index].numpy(), batch)
                    for index in range(B)
                ]
    expected = ordinary_items(case, play, play.calls)
    assert len(found) == 5 * B
    testing.assert_nests_equal(found, expected)


def test_the_sum_of_rewards_so_far_is_recorded_where_the_extras_have_it():
    play = Play()
    play.extras = acting.extras_spec(play.spec, running_return=True)
    client, layout, adder = make_ring(Case("sequences", 1), play)
    for _ in range(30):
        play.step()
    write(adder, play.calls)
    expected, sums = {}, np.zeros(B)
    for (before, _, _), (timestep, _, _) in itertools.pairwise(play.calls):
        for index, row in enumerate(before.newest.tolist()):
            sums[index] = timestep.reward[index] + GAMMA * sums[index] * (row[2] != 0)
            expected[tuple(row)] = sums[index]
    found = batched_items(client, layout)
    assert len(found) > 60
    for name, item in found.items():
        np.testing.assert_allclose(item.extras.running_return[0], expected[name], rtol=1e-6)


def test_every_item_is_drawn_equally_often():
    play = Play(resets_in_next_step=True)
    client, layout, adder = make_ring(Case("sequences", 4, 2), play)
    for _ in range(50):
        play.step()
    write(adder, play.calls)
    with client.sampler(TABLE) as sampler:
        batch = layout.unpack(sampler.sample_batch(40_000)[1])
    _, counts = np.unique(batch.observation[:, 0].numpy(), axis=0, return_counts=True)
    mean = 40_000 / len(counts)
    assert len(counts) > 30
    chi_square = ((counts - mean) ** 2 / mean).sum()
    assert abs(chi_square - len(counts)) < 4.0 * np.sqrt(2.0 * len(counts))


def test_items_are_counted_once_they_can_be_sampled():
    play = Play()
    client, _, adder = make_ring(Case("transitions", 4), play)
    counts = []
    for number in range(1, 20):
        play.step()
        write(adder, play.calls[-1:] if number > 1 else play.calls)
        counts.append((adder.num_inserted, client.table_info(TABLE).size))
    assert counts == [(B * max(0, n - 3), B * min(max(0, n - 3), STARTING_ROWS)) for n in range(1, 20)]
    adder.reset()
    assert adder.num_inserted == B * 19
    assert client.table_info(TABLE).size == B * STARTING_ROWS


def test_a_dataset_reads_a_ring():
    play = Play()
    client, layout, adder = make_ring(Case("transitions", 2), play)
    play.step(), play.step()
    write(adder, play.calls)
    with Dataset(client.sampler(TABLE), layout.unpack, batch_size=5) as dataset:
        sample = next(dataset)
    assert sample.data.observation.shape == (5, 3) and sample.data.reward.shape == (5,)
    assert sample.info.key.tolist() == [replay.NO_KEY] * 5
    assert sample.info.probability.tolist() == [1.0 / B] * 5


def test_episodes_are_opened_once_and_before_a_step():
    play = Play()
    _, _, adder = make_ring(Case("transitions", 1), play)
    play.step()
    first, step = play.calls
    with pytest.raises(ValueError, match="No episode is open. Call `add_first`"):
        adder.add(step[1], step[0], step[2])
    adder.add_first(first[0])
    with pytest.raises(ValueError, match="still open. `reset` ends them"):
        adder.add_first(first[0])
    with pytest.raises(ValueError, match="`extras` must have the structure of its spec"):
        adder.add(step[1], step[0], ())
    adder.add(step[1], step[0], step[2])
    adder.close()
    with pytest.raises(replay.ReplayError, match="writer is closed"):
        write(adder, play.calls)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"period": 0}, "`period` must be >= 1 step, got 0"), ({"discount": 1.5}, r"in \[0, 1\], got 1.5")],
)
def test_wrong_settings_are_refused(settings, message):
    client, layout, _ = make_ring(Case("transitions", 1), Play())
    with pytest.raises(ValueError, match=message):
        adders.BatchedAdder(client=client, table=TABLE, layout=layout, **settings)


@pytest.mark.parametrize("case", [*BY_EPISODE, Case("rollouts", 2)], ids=repr)
def test_adding_and_sampling_read_no_number_on_the_host(case):
    play = Play(device="meta", resets_in_next_step=case.kind != "rollouts")
    client, layout, adder = make_ring(case, play, device="meta")
    for _ in range(8):
        play.step()
    write(adder, play.calls)
    adder.reset()
    with client.sampler(TABLE) as sampler:
        batch = layout.unpack(sampler.sample_batch(5)[1])
    assert {leaf.device.type for leaf in tree.flatten(batch)} == {"meta"}
    assert batch.reward.shape[batch.reward.ndim - 1 if case.kind == "rollouts" else 0] == 5
