"""A ring of batched steps: its checkpoints, what it refuses, and when its rate limiter lets a row in."""

import dataclasses

import numpy as np
import pytest
import torch

from minerva_acme import replay, testing
from minerva_acme.replay import backends, waiting
from minerva_acme.replay import base as replay_base
from minerva_acme.replay.reverb import store as reverb_store

B, L = 3, 2
SIGNATURE = replay.ItemSignature(
    columns={
        "x": replay.ColumnSpec((2,), np.dtype(np.float32)),
        "n": replay.ColumnSpec((), np.dtype(np.int64)),
    },
    fields={"x": replay.FieldSpec("x", L), "n": replay.FieldSpec("n", 1)},
)
CONFIG = replay.TableConfig(
    name="steps",
    signature=SIGNATURE,
    max_size=5 * B,
    rate_limiter=replay.MinSize(1),
    ring=replay.Ring(B),
)
QUEUE = dataclasses.replace(
    CONFIG,
    max_size=2 * B,
    rate_limiter=replay.Queue(2 * B),
    sampler=replay.Fifo(),
    max_times_sampled=1,
    ring=replay.Ring(B, period=L, by_episode=False),
)
EVERYWHERE = torch.ones(B, dtype=torch.bool)


def row(number):
    return {"x": torch.full((B, 2), float(number)), "n": number * B + torch.arange(B)}


def fill(client, count, starts=EVERYWHERE):
    writer = client.batched_writer("steps")
    for number in range(count):
        writer.append(row(number), starts)
    return writer


@pytest.mark.parametrize("num_rows", [3, 17])
def test_a_restored_ring_goes_on_bit_for_bit(num_rows, tmp_path):
    random = torch.Generator().manual_seed(0)

    def go_on(client):
        writer, found = client.batched_writer("steps"), []
        with client.sampler("steps") as sampler:
            for number in range(100, 112):
                found.append(sampler.sample_batch(4))
                writer.append(row(number), torch.tensor([True, number % 2 == 0, False]))
        return found, client.table_info("steps")

    with replay.MemoryServer([CONFIG], seed=1, checkpoint_directory=str(tmp_path)) as server:
        client = server.client()
        writer = client.batched_writer("steps")
        for number in range(num_rows):
            writer.append(row(number), torch.rand(B, generator=random) < 0.7)
        writer.end_episodes(n=-1.0)
        with client.sampler("steps") as sampler:
            sampler.sample_batch(6)
        path = client.checkpoint()
        expected = go_on(client)
    with replay.MemoryServer([CONFIG], seed=2, restore_from=path) as server:
        testing.assert_nests_equal(go_on(server.client()), expected)
    other = dataclasses.replace(CONFIG, ring=replay.Ring(B, period=2))
    with pytest.raises(replay.ReplayError, match="`period` 1 against 2"):
        replay.MemoryServer([other], seed=2, restore_from=path)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("items/0/x", lambda array: array[:-1], "`x` must be float32 of shape"),
        ("items/0/starts", lambda array: array + 5, "must grow by 0 or 1"),
        ("items/0/n", lambda array: None, "must have the arrays"),
    ],
)
def test_a_damaged_ring_is_refused(name, change, message, tmp_path):
    with replay.MemoryServer([CONFIG], seed=1, checkpoint_directory=str(tmp_path)) as server:
        client = server.client()
        fill(client, 4)
        path = client.checkpoint()
    file = f"{path}/memory.npz"
    arrays = dict(np.load(file))
    arrays[name] = change(arrays[name])
    np.savez(file, **{key: array for key, array in arrays.items() if array is not None})
    with pytest.raises(replay.ReplayError, match=message):
        replay.MemoryServer([CONFIG], seed=1, restore_from=path)


def test_only_marked_rows_start_an_item():
    with replay.MemoryServer([CONFIG], seed=1) as server:
        client = server.client()
        writer = client.batched_writer("steps")
        for number in range(30):
            writer.append(row(number), torch.tensor([number % 3 == 0, False, number % 5 == 0]))
        with client.sampler("steps") as sampler:
            _, fields = sampler.sample_batch(200)
    # The rows 24 to 28 start items: row 29 has no successor yet, and row 23 is overwritten.
    assert set(fields["n"][:, 0].tolist()) == {24 * B, 27 * B, 25 * B + 2}
    testing.assert_nests_equal(fields["x"][:, 1] - fields["x"][:, 0], torch.ones(200, 2))


def test_marks_are_set_in_the_newest_row_where_episodes_end():
    with replay.MemoryServer([CONFIG], seed=1) as server:
        client = server.client()
        writer = client.batched_writer("steps")
        writer.end_episodes(n=-1.0)  # there is no row yet
        assert client.table_info("steps").size == 0
        for number in range(2):
            writer.append(row(number), EVERYWHERE)
        assert client.table_info("steps").size == B
        writer.end_episodes(n=-1.0)
        assert client.table_info("steps").size == 2 * B
        with client.sampler("steps") as sampler:
            _, fields = sampler.sample_batch(100)
    assert set(fields["n"][:, 0].tolist()) == {0, 1, 2, -1}


def test_a_queue_takes_no_row_that_would_complete_unread_items():
    with replay.MemoryServer([QUEUE], seed=1) as server:
        client = server.client(timeout_seconds=0.05)
        writer = fill(client, 5, starts=None)
        with pytest.raises(replay.ReplayTimeout, match="holds inserts back: 6 inserted, 0 sampled"):
            writer.append(row(5))
        with client.sampler("steps") as sampler:
            for first in (0, 2):
                _, fields = sampler.sample_batch(B)
                assert fields["n"][:, 0].tolist() == [first * B + index for index in range(B)]
                if first == 0:
                    writer.append(row(5))
            _, fields = sampler.sample_batch(B)
            assert fields["x"][:, :, 0].tolist() == [[4.0, 5.0]] * B
            with pytest.raises(replay.ReplayTimeout, match="holds samples back|Waiting for"):
                sampler.sample_batch(1, timeout_seconds=0.05)


def test_a_batch_is_joined_from_items_that_come_one_after_another():
    with replay.MemoryServer([QUEUE], seed=1) as server:
        client = server.client()
        writer = fill(client, 2, starts=None)
        with client.sampler("steps") as sampler:
            with pytest.raises(replay.ReplayTimeout):
                sampler.sample_batch(2 * B, timeout_seconds=0.05)
            for number in (2, 3):
                writer.append(row(number))
            _, fields = sampler.sample_batch(2 * B)
    assert fields["n"][:, 0].tolist() == [*range(B), *range(2 * B, 3 * B)]


def test_a_row_must_fit():
    with replay.MemoryServer([CONFIG, dataclasses.replace(QUEUE, name="queue")], seed=1) as server:
        client = server.client()
        writer = client.batched_writer("steps")
        for change, message in [
            (
                {"x": torch.zeros(B, 3)},
                r"'x' must be torch.float32 \[3, 2\] on cpu, got torch.float32 \[3, 3\]",
            ),
            ({"n": torch.zeros(B)}, "'n' must be torch.int64"),
            ({"n": torch.zeros(B, dtype=torch.int64, device="meta")}, "on cpu, got .* on meta"),
            ({"y": torch.zeros(B)}, r"columns \['n', 'x'\] and `starts`, got \['n', 'x', 'y'\] and `starts`"),
        ]:
            with pytest.raises(replay.ReplayError, match=message):
                writer.append(row(0) | change, EVERYWHERE)
        with pytest.raises(replay.ReplayError, match=r"and `starts`, got \['n', 'x'\]"):
            writer.append(row(0))
        with pytest.raises(replay.ReplayError, match=r"\['n', 'x'\], got \['n', 'x'\] and `starts`"):
            client.batched_writer("queue").append(row(0), EVERYWHERE)
        assert client.table_info("steps").inserted == 0
        writer.close()
        with pytest.raises(replay.ReplayError, match="writer is closed"):
            writer.append(row(0), EVERYWHERE)


def test_items_and_priorities_are_refused_by_name():
    with replay.MemoryServer([CONFIG], seed=1) as server:
        client = server.client()
        fill(client, 3)
        with pytest.raises(replay.ReplayError, match="whose items have no priorities"):
            client.update_priorities("steps", np.zeros(1, np.uint64), np.ones(1))
        with (
            client.writer(2) as writer,
            pytest.raises(replay.ReplayError, match="Write to it with .client.bat"),
        ):
            writer.append({"n": np.array(1)})
            writer.create_item("steps", 1.0, {"n": replay.Window("n", 0, 1)})
    with pytest.raises(ValueError, match="whose items have no priorities, got Prioritized"):
        dataclasses.replace(CONFIG, sampler=replay.Prioritized(1.0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ring": replay.Ring(0)}, "`num_environments` of the ring must be >= 1, got 0"),
        ({"ring": replay.Ring(1, 0)}, "`period` of the ring must be >= 1, got 0"),
        ({"sampler": replay.Lifo()}, "`by_episode` True, so its sampler"),
        ({"ring": replay.Ring(B, by_episode=False)}, "`by_episode` False, so its sampler"),
        (
            {"signature": SIGNATURE._replace(fields={"x": replay.FieldSpec("x", 2, variable=True)})},
            "must have fixed lengths",
        ),
    ],
)
def test_a_ring_that_cannot_be_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **change)
    with pytest.raises(ValueError, match="must be a `Queue`"):
        dataclasses.replace(QUEUE, rate_limiter=replay.MinSize(1))


def test_reverb_and_ordinary_tables_take_no_batched_steps():
    with pytest.raises(replay.ReplayError, match="batched steps in tensors. Replay in memory can"):
        reverb_store.check_selectors([CONFIG])
    assert backends.choose([CONFIG], "auto") == "memory"
    ordinary = dataclasses.replace(CONFIG, ring=None)
    message = "must be a ring to take batched steps"
    with replay.MemoryServer([ordinary], seed=1) as server, pytest.raises(replay.ReplayError, match=message):
        server.client().batched_writer("steps")
    with pytest.raises(replay.ReplayError, match="must be in the memory of this process"):
        replay_base.ReplayClient.batched_writer(None, "steps")


def test_the_memory_of_a_ring_is_reserved_and_counted():
    with replay.MemoryServer([CONFIG], seed=1) as server:
        client = server.client()
        num_rows = 5 + L - 1
        assert client.memory_bytes() == num_rows * B * (2 * 4 + 8 + 4)
        fill(client, 50)
        assert client.memory_bytes() == num_rows * B * (2 * 4 + 8 + 4)


def test_a_single_thread_that_waits_for_itself_is_told_so(monkeypatch):
    monkeypatch.setattr(waiting, "SLICE_SECONDS", 0.05)
    monkeypatch.setattr(waiting, "_STILL_SECONDS", 0.1)
    with replay.MemoryServer([QUEUE], seed=1) as server, waiting.rules(is_alone=True):
        writer = fill(server.client(), 5, starts=None)
        with pytest.raises(waiting.base.ReplayDeadlock):
            writer.append(row(5))


def test_the_draws_of_a_ring_are_saved_with_its_rows_alone():
    with replay.MemoryServer([CONFIG], seed=0) as server:
        with pytest.raises(replay.ReplayError, match="Table 'steps' is a ring: save and restore it with"):
            server.save_draws()
        with pytest.raises(replay.ReplayError, match="Table 'steps' is a ring"):
            server.restore_draws({"steps": {}})


@pytest.mark.parametrize("capacity", [B, B + 1, 2 * B - 1, 2 * B, 2 * B + 1])
def test_no_item_of_a_queue_of_any_capacity_is_overwritten_before_it_is_sampled(capacity):
    config = dataclasses.replace(QUEUE, max_size=capacity, rate_limiter=replay.Queue(capacity))
    random = np.random.default_rng(capacity)
    with replay.MemoryServer([config], seed=1) as server:
        client = server.client(timeout_seconds=0.01)
        writer, found, written = client.batched_writer("steps"), [], 0
        with client.sampler("steps") as sampler:
            while written < 40:
                try:
                    writer.append(row(written))
                except replay.ReplayTimeout:
                    info = client.table_info("steps")
                    _, fields = sampler.sample_batch(
                        int(random.integers(1, info.inserted - info.sampled + 1))
                    )
                    found += fields["n"].reshape(-1).tolist()
                else:
                    written += 1
    # The items begin in every L-th row, in the order of the environments.
    assert found == [number * B + index for number in range(0, 40, L) for index in range(B)][: len(found)]


def test_a_limiter_that_cannot_let_a_whole_row_in_is_refused():
    limiter = replay.SampleToInsertRatio(4.0, min_size=1, error_buffer=4.0)
    with pytest.raises(ValueError, match=f"`error_buffer` must be >= {4 * B} samples"):
        dataclasses.replace(CONFIG, rate_limiter=limiter)
