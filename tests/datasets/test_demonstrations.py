"""Demonstrations as a share of every batch."""

import dataclasses

import numpy as np
import pytest
import torch

from minerva_acme import datasets, learners, losses, replay, specs, testing
from minerva_acme.agents import d4pg, dqn, mpo, ppo, sac, td3
from minerva_acme.replay import backends
from tests.datasets.conftest import DISCRETE, SPEC

SMALL = {"critic_layer_sizes": (4,), "batch_size": 8, "min_replay_size": 2, "max_replay_size": 1000}
STEPS = {**SMALL, "policy_layer_sizes": (4,)}
BUILDERS = {
    "mpo": (mpo.MPOBuilder(mpo.MPOConfig(**STEPS, sequence_length=3)), SPEC),
    "sac": (sac.SACBuilder(sac.SACConfig(**STEPS)), SPEC),
    "td3": (td3.TD3Builder(td3.TD3Config(**STEPS)), SPEC),
    "d4pg": (d4pg.D4PGBuilder(d4pg.D4PGConfig(**STEPS)), SPEC),
    "dqn": (dqn.DQNBuilder(dqn.DQNConfig(**SMALL, prioritized=True)), DISCRETE),
}
TD3 = BUILDERS["td3"][0]
BY_PRIORITY = td3.TD3Builder(dataclasses.replace(TD3.config, prioritized=True, replay_fading=0.9))


def demonstrate(builder, spec, episodes, share=0.5, **options):
    return datasets.Demonstrations(
        episodes,
        tables=builder.make_replay_tables(spec),
        make_adder=lambda client: builder.make_adder(client, spec),
        spec=spec,
        extras_spec=builder.extras_spec(spec),
        share=share if callable(share) else lambda: share,
        **{"seed": 0, **options},
    )


def with_rewards(episode, reward, spec=SPEC):
    """All rewards alike, by which a batch shows where its items are from."""
    episode = episode._replace(reward=np.full(episode.num_steps, reward, np.float32))
    if spec is DISCRETE:
        episode = episode._replace(action=np.zeros(episode.num_steps, np.int32))
    return episode


def fill(builder, spec, client, episodes):
    with builder.make_adder(client, spec) as adder:
        datasets.play(episodes, adder, spec=spec, extras_spec=builder.extras_spec(spec))
        return adder.num_inserted


@pytest.mark.parametrize("backend", ["memory", pytest.param("reverb", marks=pytest.mark.reverb)])
@pytest.mark.parametrize("name", BUILDERS)
def test_every_agent_with_replay_gets_its_share_of_demonstrations_on_every_store(name, backend, make_episode):
    builder, spec = BUILDERS[name]
    tables = builder.make_replay_tables(spec)
    own, theirs = (with_rewards(make_episode(9), reward, spec) for reward in (-1.0, 1.0))
    with (
        demonstrate(builder, spec, [theirs], share=0.4) as demonstrations,
        backends.make_server(tables, backend, seed=0) as server,
        server.client() as client,
    ):
        num_items = fill(builder, spec, client, [own])
        with builder.make_dataset(demonstrations.mixed_with(client), spec, torch.device("cpu")) as dataset:
            sample = next(dataset)
        rewards = sample.data.reward.reshape(8, -1)[:, 0]
        assert rewards.sign().tolist() == [-1.0] * 5 + [1.0] * 3  # round(0.4 * 8), the last ones
        info = client.table_info("replay")
        assert (info.inserted, info.size) == (num_items, num_items)
        if backend == "memory":  # Reverb draws ahead
            assert info.sampled == 5


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.06, 0), (0.3, 2), (0.95, 8), (1.0, 8)])
def test_a_batch_holds_the_rounded_share(make_episode, share, expected):
    own, theirs = (with_rewards(make_episode(9), reward) for reward in (-1.0, 1.0))
    tables = TD3.make_replay_tables(SPEC)
    with (
        demonstrate(TD3, SPEC, [theirs], share) as demonstrations,
        replay.MemoryServer(tables, seed=0) as server,
    ):
        client = server.client()
        fill(TD3, SPEC, client, [own])
        with TD3.make_dataset(demonstrations.mixed_with(client), SPEC, torch.device("cpu")) as dataset:
            assert (next(dataset).data.reward > 0).sum() == expected
        assert client.table_info("replay").sampled == 8 - expected


def test_the_share_is_asked_for_each_batch(make_episode):
    shares = iter([1.0, 0.5, 0.0])
    theirs = [with_rewards(make_episode(9), 1.0)]
    with (
        demonstrate(TD3, SPEC, theirs, lambda: next(shares)) as demonstrations,
        replay.MemoryServer(TD3.make_replay_tables(SPEC), seed=0) as server,
    ):
        client = server.client()
        fill(TD3, SPEC, client, [with_rewards(make_episode(9), -1.0)])
        dataset = TD3.make_dataset(demonstrations.mixed_with(client), SPEC, torch.device("cpu"))
        counts = [int((next(dataset).data.reward > 0).sum()) for _ in range(3)]
    assert counts == [8, 4, 0]


def test_demonstrations_neither_fill_a_table_nor_make_a_batch_wait_no_longer(make_episode):
    with (
        demonstrate(TD3, SPEC, [make_episode(9)]) as demonstrations,
        replay.MemoryServer(TD3.make_replay_tables(SPEC), seed=0) as server,
    ):
        client = server.client()
        mixed = demonstrations.mixed_with(client)
        assert mixed.table_info("replay").size == 0
        with mixed.sampler("replay") as sampler, pytest.raises(replay.ReplayTimeout):
            sampler.sample_batch(8, timeout_seconds=0.01)
        fill(TD3, SPEC, client, [make_episode(2)])
        with mixed.sampler("replay") as sampler:
            assert len(sampler.sample_batch(8)[0].key) == 8


@pytest.mark.parametrize("backend", ["memory", pytest.param("reverb", marks=pytest.mark.reverb)])
def test_priorities_reach_the_table_of_each_item(make_episode, backend):
    builder = td3.TD3Builder(dataclasses.replace(BY_PRIORITY.config, replay_fading=1.0))
    with (
        demonstrate(builder, SPEC, [with_rewards(make_episode(9), 1.0)]) as demonstrations,
        backends.make_server(builder.make_replay_tables(SPEC), backend, seed=0) as server,
        server.client() as client,
    ):
        fill(builder, SPEC, client, [with_rewards(make_episode(9), -1.0)])
        mixed = demonstrations.mixed_with(client)
        with mixed.sampler("replay") as sampler:
            seen = {}
            while len(seen) < 18:
                info, _ = sampler.sample_batch(32)
                seen |= dict.fromkeys(info.key.tolist())
        # All but one of each become unlikely.
        keys = np.array(sorted(seen), np.uint64)
        is_theirs = (keys >= 1 << 63) & (keys < (1 << 63) + 9)
        assert is_theirs.sum() == 9
        priorities = np.full(18, 1e-9)
        likely = [keys[~is_theirs][4], keys[is_theirs][7]]
        priorities[np.isin(keys, likely)] = 5.0
        mixed.update_priorities("replay", keys, priorities)
        with mixed.sampler("replay") as sampler:
            info, _ = sampler.sample_batch(8)
        assert info.key.tolist() == [likely[0]] * 4 + [likely[1]] * 4
        assert info.priority.tolist() == [5.0] * 8


def test_importance_weights_are_relative_to_the_largest_of_the_whole_batch(make_episode):
    with (
        demonstrate(BY_PRIORITY, SPEC, [make_episode(9)]) as demonstrations,
        replay.MemoryServer(BY_PRIORITY.make_replay_tables(SPEC), seed=0) as server,
    ):
        client = server.client()
        fill(BY_PRIORITY, SPEC, client, [make_episode(30)])
        mixed = demonstrations.mixed_with(client)
        sampler = mixed.sampler("replay")
        keys = sampler.sample_batch(64)[0].key
        mixed.update_priorities("replay", keys, np.linspace(0.1, 2.0, 64))
        info, _ = sampler.sample_batch(8)
    assert info.table_size.tolist() == [30] * 4 + [9] * 4
    weights = learners.Priorities(client=mixed, table="replay", importance_exponent=lambda step: 0.7).weights(
        info, 0
    )
    plain = (info.table_size * info.probability) ** -0.7
    np.testing.assert_allclose(weights, plain / plain.max(), rtol=1e-6)
    assert weights.argmax() == plain.argmax()
    assert (
        losses.importance_weights(
            torch.from_numpy(info.probability[4:]), torch.from_numpy(info.table_size[4:]), 0.7
        ).max()
        == 1.0
    )


def test_demonstrations_do_not_fade_with_age(make_episode):
    with (
        demonstrate(BY_PRIORITY, SPEC, [make_episode(20)], share=1.0) as demonstrations,
        replay.MemoryServer(BY_PRIORITY.make_replay_tables(SPEC), seed=0) as server,
    ):
        info, _ = demonstrations.mixed_with(server.client()).sampler("replay").sample_batch(50)
    np.testing.assert_allclose(info.probability, 1 / 20)


@pytest.mark.parametrize("builder", [TD3, BY_PRIORITY])
def test_a_restored_state_draws_what_would_have_been_drawn(tmp_path, builder, make_episode):
    datasets.write(tmp_path / "data", [make_episode(9), make_episode(4, False)], SPEC)

    def draw(sampler, mixed, times):
        for _ in range(times):
            info, fields = sampler.sample_batch(6)
            mixed.update_priorities("replay", info.key, np.linspace(0.1, 3.0, 6) * info.times_sampled)
        return info, fields

    with replay.MemoryServer(builder.make_replay_tables(SPEC), seed=0) as server:
        with demonstrate(builder, SPEC, datasets.read(tmp_path / "data"), 1.0) as demonstrations:
            mixed = demonstrations.mixed_with(server.client())
            sampler = mixed.sampler("replay")
            draw(sampler, mixed, 5)
            state = testing.through_a_file(demonstrations.save())
            assert state["path"] == str(tmp_path / "data")
            expected = draw(sampler, mixed, 3)
        with demonstrate(builder, SPEC, datasets.read(tmp_path / "data"), 1.0, seed=5) as demonstrations:
            demonstrations.restore(state)
            mixed = demonstrations.mixed_with(server.client())
            testing.assert_nests_equal(draw(mixed.sampler("replay"), mixed, 3), expected)


def test_a_state_is_of_one_file(tmp_path, make_episode):
    for name in ("one", "other"):
        datasets.write(tmp_path / name, [make_episode(9)], SPEC)
    with demonstrate(TD3, SPEC, datasets.read(tmp_path / "one")) as demonstrations:
        state = demonstrations.save()
    with (
        demonstrate(TD3, SPEC, datasets.read(tmp_path / "other")) as demonstrations,
        pytest.raises(
            ValueError, match="Recorded episodes must have the checksum [0-9a-f]{12} of .*one, got"
        ),
    ):
        demonstrations.restore(state)
    with demonstrate(TD3, SPEC, [make_episode(3)]) as demonstrations:
        short = demonstrations.save()
    with demonstrate(TD3, SPEC, [make_episode(4)]) as demonstrations:
        with pytest.raises(ValueError, match="Table 'replay' must have 3 items, got 4"):
            demonstrations.restore(short)
        with pytest.raises(ValueError, match=r"The tables must be \['other'\], got \['replay'\]"):
            demonstrations.restore({**short, "draws": {"other": short["draws"]["replay"]}})


def test_an_agent_without_replay_is_refused(make_episode):
    builder = ppo.PPOBuilder(ppo.PPOConfig(policy_layer_sizes=(4,), value_layer_sizes=(4,)))
    with pytest.raises(ValueError, match=r"need an agent that replays items, but '\w+' is a queue"):
        demonstrate(builder, SPEC, [make_episode()])
    with pytest.raises(ValueError, match="need an agent with a replay table, got none"):
        datasets.Demonstrations(
            [make_episode()], tables=[], make_adder=None, spec=SPEC, share=lambda: 0.5, seed=0
        )


def test_an_agent_that_stores_recurrent_states_is_refused_with_the_way_out(make_episode):
    memory = {"memory": "gru", "memory_size": 4, "n_step": 1, "sequence_length": 2, "sequence_period": 1}
    config = dataclasses.replace(TD3.config, prioritized=False, **memory)
    message = (
        "Recurrent states of recorded episodes are not used, since other weights made them, but table "
        "'replay' stores states. Set `stored_state` to False"
    )
    with pytest.raises(ValueError, match=message):
        demonstrate(td3.TD3Builder(config), SPEC, [make_episode(5)])
    without = td3.TD3Builder(dataclasses.replace(config, stored_state=False))
    with demonstrate(without, SPEC, [make_episode(5)]) as demonstrations:
        assert demonstrations.played.num_steps == 5


class Drops(sac.SACBuilder):
    """Its adder writes nothing."""

    def make_adder(self, client, spec):
        return datasets.RecordingAdder(lambda episode: None)


def test_demonstrations_that_make_no_item_are_refused(make_episode):
    with pytest.raises(ValueError, match="must make items for table 'replay', .* got 0 from 1 episodes"):
        demonstrate(Drops(BUILDERS["sac"][0].config), SPEC, [make_episode()])


def test_episodes_that_are_none_or_can_be_read_only_once_are_refused(make_episode):
    with pytest.raises(ValueError, match="at least one episode, got none"):
        demonstrate(TD3, SPEC, [])
    with pytest.raises(ValueError, match="is read twice, got generator. Make a list of it"):
        demonstrate(TD3, SPEC, (make_episode() for _ in range(2)))


def test_demonstrations_in_other_units_are_scaled_by_the_spec_of_the_data(make_episode):
    wide = SPEC._replace(actions=specs.BoundedArray((1,), np.float32, -4, 4))
    episode = make_episode(9)
    given = {}
    for name, recorded_spec in (("own", None), ("wide", wide)):
        with (
            demonstrate(TD3, SPEC, [episode], 1.0, recorded_spec=recorded_spec) as demonstrations,
            replay.MemoryServer(TD3.make_replay_tables(SPEC), seed=0) as server,
        ):
            client = demonstrations.mixed_with(server.client())
            with TD3.make_dataset(client, SPEC, torch.device("cpu")) as dataset:
                given[name] = next(dataset).data.action
    assert given["own"].abs().max() > 0
    torch.testing.assert_close(given["wide"] * 4, given["own"])


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(make_episode, share):
    with (
        demonstrate(TD3, SPEC, [make_episode(9)], share) as demonstrations,
        replay.MemoryServer(TD3.make_replay_tables(SPEC), seed=0) as server,
    ):
        sampler = demonstrations.mixed_with(server.client()).sampler("replay")
        with pytest.raises(ValueError, match=f"must be between 0 and 1, got {share}"):
            sampler.sample_batch(8)


@pytest.mark.parametrize(("share", "is_told"), [(0.06, True), (0.0, False), (0.07, False)])
def test_a_share_too_small_for_the_batch_is_told_once(make_episode, share, is_told, caplog):
    with (
        demonstrate(TD3, SPEC, [make_episode(9)], share) as demonstrations,
        replay.MemoryServer(TD3.make_replay_tables(SPEC), seed=0) as server,
    ):
        client = server.client()
        fill(TD3, SPEC, client, [make_episode(9)])
        sampler = demonstrations.mixed_with(client).sampler("replay")
        for _ in range(2):
            sampler.sample_batch(8)
    assert caplog.text.count("batches hold no demonstrations") == is_told


def test_items_of_variable_length_are_padded_to_the_longest(make_episode):
    from minerva_acme.adders import SequenceAdder, write_short
    from minerva_acme.replay import layouts

    layout = layouts.TrajectoryLayout(SPEC, 6, variable_length=True)
    table = replay.TableConfig(
        name="replay", signature=layout.signature, max_size=100, rate_limiter=replay.MinSize(1)
    )

    def make_adder(client):
        return SequenceAdder(client=client, table="replay", layout=layout, period=6, at_end=write_short)

    with (
        replay.MemoryServer([table], seed=0) as server,
        datasets.Demonstrations(
            [make_episode(2)], tables=[table], make_adder=make_adder, spec=SPEC, share=lambda: 0.5, seed=0
        ) as demonstrations,
    ):
        client = server.client()
        with make_adder(client) as adder:
            datasets.play([make_episode(5)], adder, spec=SPEC)
        _, fields = demonstrations.mixed_with(client).sampler("replay").sample_batch(4)
    assert {name: field.shape[:2] for name, field in fields.items()} == dict.fromkeys(fields, (4, 6))
    mask = layout.unpack({name: torch.from_numpy(field) for name, field in fields.items()}).mask
    assert mask.sum(1).tolist() == [5, 5, 2, 2]


def test_the_memory_is_that_of_both(make_episode):
    with (
        demonstrate(TD3, SPEC, [make_episode(9)]) as demonstrations,
        replay.MemoryServer(TD3.make_replay_tables(SPEC), seed=0) as server,
    ):
        client = server.client()
        mixed = demonstrations.mixed_with(client)
        assert mixed.memory_bytes() > client.memory_bytes()
        mixed.check_table(TD3.make_replay_tables(SPEC)[0])
