"""What replay in memory promises beyond the interface: seeds, bits, bytes."""

import json
import os
import pathlib
import pickle
import re
import signal
import threading
import time

import numpy as np
import pytest
import torch

from minerva_acme import replay
from minerva_acme.replay.dataset import Dataset
from minerva_acme.replay.memory import tensors
from minerva_acme.replay.memory.table import Table

NUMBER = replay.ItemSignature(
    columns={"number": replay.ColumnSpec((), np.dtype(np.int64))},
    fields={"window": replay.FieldSpec("number", 3)},
)
KINDS = {
    "uniform": {},
    "prioritized": {"sampler": replay.Prioritized(0.7)},
    "fading": {"sampler": replay.Prioritized(0.0, 0.95, 0.3)},
    "fading-prioritized": {"sampler": replay.Prioritized(0.7, 0.9, new_priority="largest")},
    "uniform-removed": {"remover": replay.Uniform()},
    "priority-removed": {"remover": replay.Prioritized(1.0), "sampler": replay.Prioritized(0.5)},
    "lifo-removed": {"remover": replay.Lifo(), "sampler": replay.Uniform()},
    "thrice": {"max_times_sampled": 3},
    "stack": {"sampler": replay.Lifo(), "max_times_sampled": 1},
    "queue": {"sampler": replay.Fifo(), "max_times_sampled": 1},
}


@pytest.fixture(params=[None, "cpu"], ids=["arrays", "tensors"])
def device(request):
    return request.param


def write_numbers(writer, first, num_items, table="replay", generator=None):
    """Item i has rows i, i + 1, i + 2; an episode of its own for each call."""
    for t in range(num_items + 2):
        writer.append({"number": np.array(first + t)})
        if t >= 2:
            priority = 1.0 if generator is None else float(generator.integers(0, 4))
            writer.create_item(table, priority, {"window": replay.Window("number", t - 2, 3)})
    writer.end_episode()


def play(client, seed, num_rounds=15):
    """Writes and samples this and that; returns everything that was sampled."""
    generator = np.random.default_rng(seed)
    sampled = []
    with client.writer(3) as one, client.writer(3) as other, client.sampler("replay") as sampler:
        for i in range(num_rounds):
            write_numbers(one, 1000 * i, int(generator.integers(1, 30)), generator=generator)
            write_numbers(other, 1000 * i + 500, int(generator.integers(1, 30)), generator=generator)
            size = min(20, client.table_info("replay").size)
            info, fields = sampler.sample_batch(size, 5.0)
            windows = np.asarray(fields["window"])
            assert np.all(np.diff(windows, axis=1) == 1), "rows of an item that do not follow each other"
            keys = np.unique(info.key)
            client.update_priorities("replay", keys, generator.integers(0, 4, len(keys)).astype(np.float64))
            sampled.append((windows, *info))
    return sampled


def assert_same(found, expected):
    for found_round, expected_round in zip(found, expected, strict=True):
        for found_array, expected_array in zip(found_round, expected_round, strict=True):
            np.testing.assert_array_equal(found_array, expected_array)


@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_gives_the_same_batches_on_every_device(serve_memory, table, kind):
    config = table(signature=NUMBER, max_size=50, **KINDS[kind])
    first = play(serve_memory(config, seed=3).client(), 1)
    assert_same(play(serve_memory(config, seed=3, device="cpu").client(), 1), first)
    if kind not in ("stack", "queue"):
        other = play(serve_memory(config, seed=4).client(), 1)
        assert any(not np.array_equal(a[0], b[0]) for a, b in zip(first, other, strict=True))


# How rows are kept has nothing to do with which are drawn.
@pytest.mark.parametrize(("kind", "device"), [*((kind, None) for kind in KINDS), ("prioritized", "cpu")])
def test_a_restored_store_goes_on_to_the_bit(serve_memory, table, kind, device, tmp_path):
    config = table(signature=NUMBER, max_size=50, **KINDS[kind])
    original = serve_memory(config, seed=3, checkpoint_directory=str(tmp_path), device=device)
    play(original.client(), 1)
    path = original.client().checkpoint()
    expected = play(original.client(), 2)
    # Another seed, since the generators are part of the checkpoint; arrays and tensors can change places.
    for seed, other in ((3, "cpu"), (9, None)):
        restored = serve_memory(config, seed=seed, restore_from=path, device=other)
        assert_same(play(restored.client(), 2), expected)


@pytest.mark.parametrize("kind", ["plain", "fading"])
def test_weights_do_not_depend_on_how_an_item_got_its_priority(serve_memory, table, kind, tmp_path):
    """Inserted, updated and restored: the same bits. A power of an array differs from one of a float."""
    sampler = {"plain": replay.Prioritized(0.5), "fading": replay.Prioritized(0.5, 0.9999, 0.5)}[kind]
    config = table(signature=NUMBER, max_size=8000, sampler=sampler)
    server = serve_memory(config, checkpoint_directory=str(tmp_path))
    client = server.client()
    priorities = np.random.default_rng(0).random(8000) * 5
    with client.writer(3) as writer:
        for t in range(8002):
            writer.append({"number": np.array(t)})
            if t >= 2:
                writer.create_item("replay", priorities[t - 2], {"window": replay.Window("number", t - 2, 3)})

    def weights(server):
        return server._tables.tables["replay"]._sampling._tree.weights(np.arange(8000))

    inserted = weights(server)
    restored = serve_memory(config, restore_from=client.checkpoint())
    np.testing.assert_array_equal(weights(restored), inserted)
    client.update_priorities("replay", np.arange(8000), priorities)
    np.testing.assert_array_equal(weights(server), inserted)


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_agrees_with_a_list_of_items(serve_memory, table, kind):
    """Whatever is inserted, sampled and dropped, what can be sampled is what is still there."""
    config = table(signature=NUMBER, max_size=20, **KINDS[kind])
    server = serve_memory(config)
    client = server.client()
    play(client, 5)
    held = server._tables.tables["replay"]
    alive = set()
    for _ in range(50):
        if not config.max_times_sampled:
            drawn = held.draw(20)
            alive |= set(drawn.info.key.tolist())
    info = client.table_info("replay")
    assert info.size <= 20
    if kind == "uniform":
        assert alive == set(range(info.inserted - 20, info.inserted))
    assert len(alive) <= info.size
    numbers = held._alive()
    assert len(numbers) == info.size
    assert (np.diff(numbers) > 0).all()


def test_a_sampled_item_counts_how_often_even_twice_in_a_batch(serve_memory, table):
    client = serve_memory(table(signature=NUMBER)).client()
    with client.writer(3) as writer:
        write_numbers(writer, 0, 3)
    with client.sampler("replay") as sampler:
        seen = {0: 0, 1: 0, 2: 0}
        for _ in range(5):
            info, fields = sampler.sample_batch(10)
            for number, times in zip(
                fields["window"][:, 0].tolist(), info.times_sampled.tolist(), strict=True
            ):
                seen[number] += 1
                assert times == seen[number]


def test_an_item_takes_its_rows_once_however_many_overlap(serve_memory, table):
    num_rows, length, width = 20_000, 5, 40
    signature = replay.ItemSignature(
        columns={"step": replay.ColumnSpec((width,), np.dtype(np.float32))},
        fields={"step": replay.FieldSpec("step", length)},
    )
    client = serve_memory(table(signature=signature, max_size=num_rows)).client()
    row = np.zeros(width, np.float32)
    with client.writer(length) as writer:
        for t in range(num_rows + length):
            writer.append({"step": row})
            if t >= length - 1:
                writer.create_item("replay", 1.0, {"step": replay.Window("step", t - length + 1, length)})
    assert client.table_info("replay").size == num_rows
    assert num_rows * row.nbytes <= client.memory_bytes() <= 1.1 * num_rows * row.nbytes


@pytest.mark.parametrize("kind", KINDS)
def test_memory_stays_bounded(serve_memory, table, kind):
    config = table(signature=NUMBER, max_size=200, **KINDS[kind])
    client = serve_memory(config).client()
    with client.writer(3) as writer:
        sizes = []
        for i in range(8):
            write_numbers(writer, 0, 600, generator=np.random.default_rng(i))
            sizes.append(client.memory_bytes())
    assert sizes[-1] <= 1.2 * sizes[3]
    raw = 3 * 200 * 8  # of items that share no row
    assert sizes[-1] <= 8 * raw


def test_an_episode_without_end_takes_no_more_memory(serve_memory, table):
    client = serve_memory(table(signature=NUMBER, max_size=100)).client()
    sizes = []
    with client.writer(3) as writer:
        for t in range(20_000):
            writer.append({"number": np.array(t)})
            if t >= 2:
                writer.create_item("replay", 1.0, {"window": replay.Window("number", t - 2, 3)})
            if t % 5000 == 4999:
                sizes.append(client.memory_bytes())
    assert sizes == sizes[:1] * 4


def test_items_that_left_from_the_middle_stay_away_whatever_their_priority_is_set_to(serve_memory, table):
    config = table(signature=NUMBER, max_size=20, sampler=replay.Prioritized(1.0), remover=replay.Uniform())
    client = serve_memory(config).client()
    with client.writer(3) as writer, client.sampler("replay") as sampler:
        write_numbers(writer, 0, 20)
        old = np.unique(sampler.sample_batch(500)[0].key)
        assert len(old) == 20
        write_numbers(writer, 100, 15)
        left = np.unique(sampler.sample_batch(500)[0].key)
        client.update_priorities("replay", old, np.full(20, 1e6))
        info, _ = sampler.sample_batch(500)
    assert set(info.key.tolist()) <= set(left.tolist()) & set(old.tolist())
    assert set(info.priority.tolist()) == {1e6}


def test_rows_that_no_item_refers_to_are_used_again(serve_memory, table):
    queue = table(
        signature=NUMBER,
        rate_limiter=replay.Queue(10),
        max_size=10,
        sampler=replay.Fifo(),
        max_times_sampled=1,
    )
    client = serve_memory(queue).client()
    with client.writer(3) as writer, client.sampler("replay") as sampler:
        for i in range(400):
            write_numbers(writer, 100 * i, 10)
            fields = sampler.sample_batch(10)[1]
            assert fields["window"][:, 0].tolist() == list(range(100 * i, 100 * i + 10))
            if i == 40:
                before = client.memory_bytes()
    assert client.memory_bytes() == before


def test_a_closed_writers_pages_are_used_again(serve_memory, table):
    client = serve_memory(table(signature=NUMBER, max_size=10)).client()
    for i in range(50):
        with client.writer(3) as writer:
            write_numbers(writer, i, 5)
        if i == 20:
            before = client.memory_bytes()
    assert client.memory_bytes() == before


@pytest.mark.parametrize("length", [2, 255, 256, 257, 700])
def test_windows_across_pages_come_back_whole_with_several_writers(serve_memory, table, length, device):
    signature = replay.ItemSignature(
        columns={"number": replay.ColumnSpec((), np.dtype(np.int64))},
        fields={
            "window": replay.FieldSpec("number", length),
            "tail": replay.FieldSpec("number", length, variable=True),
        },
    )
    config = table(signature=signature, sampler=replay.Fifo(), max_times_sampled=1)
    client = serve_memory(config, device=device).client()
    writers = [client.writer(length) for _ in range(3)]
    starts, tails = [], []
    for t in range(1500):
        for i, writer in enumerate(writers):
            writer.append({"number": np.array(10_000 * i + t)})
            start = t - length + 1
            if start >= 0 and start % 97 == 0:
                tail = 1 + start % length
                fields = {
                    "window": replay.Window("number", start, length),
                    "tail": replay.Window("number", t - tail + 1, tail),
                }
                writer.create_item("replay", 1.0, fields)
                starts.append(10_000 * i + start)
                tails.append(tail)
    with client.sampler("replay") as sampler:
        fields = sampler.sample_batch(len(starts))[1]
    expected = np.array(starts)[:, None] + np.arange(length)
    np.testing.assert_array_equal(np.asarray(fields["window"]), expected)
    for rows, tail, row in zip(expected, tails, np.asarray(fields["tail"]), strict=True):
        np.testing.assert_array_equal(row[:tail], rows[-tail:])
        assert not row[tail:].any()
    for writer in writers:
        writer.close()


def test_pieces_of_a_batch_of_several_lengths_are_joined(serve_memory, table, device):
    signature = replay.ItemSignature(
        columns={"number": replay.ColumnSpec((), np.dtype(np.int64))},
        fields={"window": replay.FieldSpec("number", 4, variable=True)},
    )
    config = table(signature=signature, sampler=replay.Fifo(), max_times_sampled=1)
    client = serve_memory(config, device=device).client()
    with client.writer(4) as writer, client.sampler("replay") as sampler:
        for number, length in enumerate([1, 1, 1, 3, 2]):
            while True:
                writer.append({"number": np.array(number + 1)})
                if writer._streams["number"].num_rows >= length:
                    break
            rows = writer._streams["number"].num_rows
            writer.create_item("replay", 1.0, {"window": replay.Window("number", rows - length, length)})
            if number in (1, 3):
                with pytest.raises(replay.ReplayTimeout, match="Waiting for"):
                    sampler.sample_batch(9, timeout_seconds=0.0)
        assert np.asarray(sampler.sample_batch(1)[1]["window"]).tolist() == [[1]]
        assert np.asarray(sampler.sample_batch(2)[1]["window"]).tolist() == [[2], [3]]
        info, fields = sampler.sample_batch(2)
    assert np.asarray(fields["window"]).tolist() == [[2, 3, 4], [4, 5, 0]]
    assert len(info.key) == 2


def test_more_rows_than_are_sent_at_once_reach_the_device_in_order(serve_memory, table):
    client = serve_memory(table(signature=NUMBER, sampler=replay.Lifo()), device="cpu").client()
    with client.writer(3) as writer:
        write_numbers(writer, 0, 5000)
    with client.sampler("replay") as sampler:
        assert sampler.sample_batch(1)[1]["window"].tolist() == [[4999, 5000, 5001]]


def test_the_newest_of_rows_that_are_sent_to_one_place_together_stays():
    rows = tensors.TensorRows((3, 2), np.dtype(np.uint16), torch.device("cpu"))
    for number in range(50):
        rows[number * 7 % 3 if number % 5 else 1] = [number, number + 1]
    expected = np.zeros((3, 2), np.uint16)
    for number in range(50):
        expected[number * 7 % 3 if number % 5 else 1] = [number, number + 1]
    assert rows.tensor().tolist() == expected.tolist()


def test_tensors_pass_through_the_dataset_as_they_are(serve_memory, table):
    client = serve_memory(table(signature=NUMBER), device="cpu").client()
    with client.writer(3) as writer:
        write_numbers(writer, 0, 5)
    sampler = client.sampler("replay")
    sampled = []
    sample = sampler.sample_batch
    sampler.sample_batch = lambda *arguments: sampled.append(sample(*arguments)) or sampled[-1]
    with Dataset(sampler, lambda fields: fields["window"], 4) as dataset:
        assert next(dataset).data is sampled[0][1]["window"]


def test_a_dataset_samples_when_asked_in_the_callers_thread(serve_memory, table):
    client = serve_memory(table(signature=NUMBER)).client()
    with client.writer(3) as writer:
        write_numbers(writer, 0, 5)
    with Dataset(client.sampler("replay"), lambda fields: fields["window"], 4) as dataset:
        threads = threading.active_count()
        next(dataset)
        assert threading.active_count() == threads
        assert client.table_info("replay").sampled == 4


def test_a_thread_that_writes_and_samples_gets_a_timeout_and_no_deadlock(serve_memory, table):
    limiter = replay.SampleToInsertRatio(samples_per_insert=1.0, min_size=2, error_buffer=4.0)
    client = serve_memory(table(signature=NUMBER, rate_limiter=limiter)).client(timeout_seconds=0.2)
    with client.writer(3) as writer, client.sampler("replay") as sampler:
        start = time.monotonic()
        with pytest.raises(replay.ReplayTimeout, match="holds inserts back: 6 inserted, 0 sampled"):
            write_numbers(writer, 0, 100)
        assert time.monotonic() - start < 5.0
        sampler.sample_batch(6)
        assert client.table_info("replay").inserted > 6


def test_closing_the_server_ends_every_wait(serve_memory, table):
    queue = table(
        signature=NUMBER,
        rate_limiter=replay.Queue(2),
        max_size=2,
        sampler=replay.Fifo(),
        max_times_sampled=1,
    )
    server = serve_memory(queue, table(name="empty", signature=NUMBER))
    client = server.client()
    errors = []

    def run(call):
        try:
            call()
        except replay.ReplayError as error:
            errors.append(str(error))

    writer, sampler = client.writer(3), client.sampler("empty")
    threads = [
        threading.Thread(target=run, args=(call,), daemon=True)
        for call in (lambda: write_numbers(writer, 0, 100), lambda: sampler.sample_batch(1))
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    server.close()
    for thread in threads:
        thread.join(5.0)
    assert errors == ["The replay server in memory is closed. Make a new one."] * 2
    with pytest.raises(replay.ReplayError, match="is closed"):
        client.table_info("replay")
    writer.close()
    sampler.close()


def test_a_client_cannot_be_sent_to_another_process(serve_memory, table):
    with pytest.raises(replay.ReplayError, match="cannot be reached from another process. Use Reverb"):
        pickle.dumps(serve_memory(table()).client())


def test_a_checkpoint_is_plain_arrays_whole_or_not_at_all(serve_memory, table, write, tmp_path):
    client = serve_memory(table(), checkpoint_directory=str(tmp_path)).client()
    write(client, num_items=3)
    first, second = client.checkpoint(), client.checkpoint()
    assert not pathlib.Path(first).exists()  # Only the newest is kept.
    files = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert files == [pathlib.Path(second).relative_to(tmp_path) / "memory.npz"]
    with np.load(pathlib.Path(second) / "memory.npz", allow_pickle=False) as arrays:
        assert json.loads(str(arrays["described"]))["tables"]["replay"]["numbers"]["size"] == 3


def test_a_checkpoint_of_other_columns_is_refused(serve_memory, table, tmp_path):
    client = serve_memory(table(signature=NUMBER), checkpoint_directory=str(tmp_path)).client()
    path = client.checkpoint()
    renamed = replay.ItemSignature(
        columns={"count": NUMBER.columns["number"]}, fields={"window": replay.FieldSpec("count", 3)}
    )
    with pytest.raises(replay.ReplayError, match=r"must hold rows of the columns \['count .*'number"):
        replay.MemoryServer([table(signature=renamed)], seed=0, restore_from=path)


def test_a_folder_that_cannot_be_written_to_is_an_error_and_leaves_nothing(serve_memory, table, tmp_path):
    (tmp_path / "file").write_text("")
    client = serve_memory(table(), checkpoint_directory=str(tmp_path / "file")).client()
    with pytest.raises(replay.ReplayError, match="The server in memory wrote no checkpoint: "):
        client.checkpoint()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("exponent", [-1.0, float("nan"), float("inf")])
def test_an_exponent_that_is_none_is_refused(table, exponent):
    with pytest.raises(ValueError, match=r"`exponent` of the sampler must be finite and >= 0 \(.*\), got"):
        table(sampler=replay.Prioritized(exponent))


@pytest.mark.parametrize("role", ["sampler", "remover"])
@pytest.mark.parametrize(("exponent", "most"), [(0.5, 1e290), (1.0, 1e290), (2.0, 1e145)])
def test_a_priority_whose_power_or_sum_overflows_is_refused_and_changes_nothing(
    serve_memory, table, write, role, exponent, most, tmp_path
):
    config = table(**{"signature": NUMBER, role: replay.Prioritized(exponent)})
    client = serve_memory(config, checkpoint_directory=str(tmp_path)).client()
    with client.writer(3) as writer:
        write_numbers(writer, 0, 5)
        message = re.escape(f"A priority in table 'replay' must be <= {most:g}, ") + ".*, got 1e.300"
        with pytest.raises(ValueError, match=message):
            client.update_priorities("replay", np.arange(2, dtype=np.uint64), np.array([1.0, 1e300]))
        for i in range(3):
            writer.append({"number": np.array(i)})
        with pytest.raises(ValueError, match=message):
            writer.create_item("replay", 1e300, {"window": replay.Window("number", 0, 3)})
        client.update_priorities("replay", np.arange(5, dtype=np.uint64), np.full(5, 0.99 * most))
    with replay.MemoryServer([config], seed=0, restore_from=client.checkpoint()) as server:
        info, _ = server.client().sampler("replay").sample_batch(20)
    assert set(info.priority) == {0.99 * most}
    np.testing.assert_allclose(info.probability, 0.2)


@pytest.mark.parametrize("batch_size", [1, 7, 4000])
def test_a_table_that_empties_is_not_searched_for_every_item(serve_memory, table, monkeypatch, batch_size):
    client = serve_memory(table(signature=NUMBER, max_size=4000, max_times_sampled=1)).client()
    with client.writer(3) as writer:
        write_numbers(writer, 0, 4000)
    searches, alive = [], Table._alive
    monkeypatch.setattr(Table, "_alive", lambda self: (searches.append(self.size), alive(self))[1])
    sampled = []
    with client.sampler("replay") as sampler:
        while len(sampled) < 4000:
            size = min(batch_size, 4000 - len(sampled))
            sampled += sampler.sample_batch(size, 5.0)[1]["window"][:, 0].tolist()
    assert sorted(sampled) == list(range(4000))
    assert len(searches) < 20


def test_draws_that_are_restored_know_the_largest_priority(serve_memory, table):
    config = table(signature=NUMBER, sampler=replay.Prioritized(1.0, new_priority="largest"))
    found, states = [], []
    for _ in range(2):
        server = serve_memory(config)
        with server.client() as client, client.writer(3) as writer:
            write_numbers(writer, 0, 5)
            if not states:
                client.update_priorities("replay", np.array([2], np.uint64), np.array([50.0]))
                states.append(server.save_draws())
            else:
                server.restore_draws(states[0])
            write_numbers(writer, 10, 1)
            info, fields = client.sampler("replay").sample_batch(100)
            found.append(dict(zip(fields["window"][:, 0].tolist(), info.priority.tolist(), strict=True)))
    assert found[0] == found[1] and found[0][10] == 50.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_size": 2.5}, "`max_size` must be a whole number of items >= 1, got 2.5"),
        ({"max_size": "9"}, "`max_size` must be a whole number of items >= 1, got '9'"),
        ({"max_times_sampled": 1.5}, "`max_times_sampled` must be a whole number, got 1.5"),
        ({"name": 3}, "`name` must be text, got 3"),
        ({"sampler": 3}, "`sampler` must be a `replay.Selector`, got 3. Write replay.Uniform(), for example"),
        ({"sampler": "uniform"}, "`sampler` must be a `replay.Selector`, got 'uniform'"),
        ({"sampler": replay.Lifo}, "got <class 'minerva_acme.replay.selectors.Lifo'>. Write Lifo(...)."),
        ({"sampler": None}, "`sampler` must be a `replay.Selector`, got None"),
        (
            {"sampler": replay.Prioritized("1")},
            "`exponent` of the sampler must be finite and >= 0 (0 draws",
        ),
        (
            {"sampler": replay.Prioritized(1.0, new_priority="highest")},
            "`new_priority` of the sampler must be one of ('given', 'largest'), got 'highest'",
        ),
        (
            {"rate_limiter": 5},
            "`rate_limiter` must be MinSize or SampleToInsertRatio or Queue, got 5",
        ),
        ({"rate_limiter": replay.MinSize(0)}, "`min_size` of the rate limiter must be >= 1, got 0"),
        ({"rate_limiter": replay.MinSize(2.5)}, "`min_size` of the rate limiter must be a whole number"),
        ({"signature": {}}, "`signature` must be ItemSignature, got {}"),
        ({"contents": [1]}, "`contents` must be a mapping of names to values, got [1]"),
        ({"ring": 4}, "`ring` must be Ring or None, got 4"),
        ({"ring": replay.Ring(0)}, "`num_environments` of the ring must be >= 1, got 0"),
        (
            {"signature": NUMBER._replace(fields={"window": replay.FieldSpec("numbers", 3)})},
            "Field 'window' of table 'replay' must be of a column of its signature, 'number', got 'numbers'",
        ),
        (
            {"signature": NUMBER._replace(fields={"window": replay.FieldSpec("number", 0)})},
            "`length` of field 'window' of table 'replay' must be >= 1, got 0",
        ),
        *(
            ({"rate_limiter": replay.SampleToInsertRatio(ratio, 1, buffer)}, message)
            for ratio, buffer, message in (
                (
                    float("nan"),
                    5.0,
                    "`samples_per_insert` of the rate limiter must be finite and > 0, got nan",
                ),
                (
                    float("inf"),
                    5.0,
                    "`samples_per_insert` of the rate limiter must be finite and > 0, got inf",
                ),
                (2.0, float("nan"), "`error_buffer` of the rate limiter must be a number, got nan"),
                (2.0, 1.0, "`error_buffer` must be >= 2 samples"),
                (0.0, 3.0, "`samples_per_insert` of the rate limiter must be finite and > 0, got 0.0"),
            )
        ),
        ({"rate_limiter": replay.Queue(2000)}, "`capacity` of a queue must be >= 1 item and <= `max_size`"),
        ({"rate_limiter": replay.Queue(0)}, "`capacity` of a queue must be >= 1 item and <= `max_size`"),
    ],
)
def test_settings_that_are_none_are_refused(table, settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        table(**settings)


def test_a_seed_that_is_none_is_refused(table):
    with pytest.raises(ValueError, match="`seed` must be >= 0, got -1."):
        replay.MemoryServer([table()], seed=-1)


def test_ctrl_c_ends_a_wait_and_leaves_the_store_usable(serve_memory, table):
    client = serve_memory(table(signature=NUMBER)).client()
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        start = time.monotonic()
        with client.sampler("replay") as sampler, pytest.raises(KeyboardInterrupt):
            sampler.sample_batch(1)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, handler)
    assert time.monotonic() - start < 2.0
    with client.writer(3) as writer:
        write_numbers(writer, 0, 1)
    assert client.table_info("replay").size == 1
