"""What is written comes back, on real servers."""

import os
import pathlib
import re
import resource
import subprocess
import sys
import time
import zlib

import numpy as np
import pytest

from minerva_acme import replay

pytestmark = pytest.mark.reverb


def sample_all(client, num_items, table="replay"):
    with client.sampler(table, exact=True) as sampler:
        return sampler.sample_batch(num_items)


NUMBERED = replay.ItemSignature(
    columns={"number": replay.ColumnSpec((2,), np.dtype(np.float32))},
    fields={"field": replay.FieldSpec("number", 3)},
)


def test_items_arrive_without_a_flush_but_for_a_few(serve, table):
    client = serve(table(signature=NUMBERED)).client()
    with client.writer(max_window=3) as writer:
        for number in range(50):
            writer.append({"number": np.full(2, number, np.float32)})
            if number >= 2:
                writer.create_item("replay", 1.0, {"field": replay.Window("number", number - 2, 3)})
        # 48 items are made. What may be missing: two chunks of 3 on their way, and one not handed over.
        deadline = time.monotonic() + 30.0
        while client.table_info("replay").size < 39:
            assert time.monotonic() < deadline


def test_items_that_a_closed_writer_had_not_handed_over_arrive(serve, table):
    client = serve(table(signature=NUMBERED)).client()
    writer = client.writer(max_window=6)
    for number in range(4):
        writer.append({"number": np.full(2, number, np.float32)})
    writer.create_item("replay", 1.0, {"field": replay.Window("number", 1, 3)})
    writer.close()
    _, fields = sample_all(client, 1)
    np.testing.assert_array_equal(fields["field"][0], [[1, 1], [2, 2], [3, 3]])


def test_windows_longer_than_a_chunk_come_back_whole(serve, table):
    length = 50
    signature = replay.ItemSignature(
        columns={"column": replay.ColumnSpec((), np.dtype(np.int64))},
        fields={"field": replay.FieldSpec("column", length)},
    )
    client = serve(table(signature=signature, sampler=replay.Fifo())).client()
    with client.writer(max_window=length) as writer:
        for t in range(200):
            writer.append({"column": np.array(t)})
            if t + 1 >= length:
                window = replay.Window("column", t + 1 - length, length)
                writer.create_item("replay", 1.0, {"field": window})
        writer.end_episode()
    assert client.table_info("replay").size == 151
    with client.sampler("replay") as sampler:
        _, fields = sampler.sample_batch(1)
    np.testing.assert_array_equal(fields["field"][0], np.arange(length))


VARIABLE = replay.ItemSignature(
    columns={
        "number": replay.ColumnSpec((), np.dtype(np.int64)),
        "image": replay.ColumnSpec((2, 2, 1), np.dtype(np.uint8)),
    },
    fields={
        "numbers": replay.FieldSpec("number", 40, variable=True),
        "images": replay.FieldSpec("image", 40, variable=True),
        "last": replay.FieldSpec("number", 1),
    },
)


def write_of_lengths(client, lengths):
    """Writes items of these lengths, in one episode, whose rows count from 1."""
    with client.writer(max_window=40) as writer:
        num_rows = 0
        for length in lengths:
            while num_rows < length:
                num_rows += 1
                writer.append({"number": np.array(num_rows), "image": np.full((2, 2, 1), num_rows, np.uint8)})
            fields = {
                "numbers": replay.Window("number", num_rows - length, length),
                "images": replay.Window("image", num_rows - length, length),
                "last": replay.Window("number", num_rows - 1, 1),
            }
            writer.create_item("replay", 1.0, fields)
        writer.end_episode()


def test_items_of_several_lengths_come_with_rows_of_zero_behind_the_shorter(serve, table):
    client = serve(table(signature=VARIABLE, sampler=replay.Fifo(), max_times_sampled=1)).client()
    write_of_lengths(client, [2, 3, 1, 40])
    with client.sampler("replay") as sampler:
        _, first = sampler.sample_batch(3)
        _, second = sampler.sample_batch(1)
    assert first["numbers"].tolist() == [[1, 2, 0], [1, 2, 3], [3, 0, 0]]
    assert first["images"][..., 1, 1, 0].tolist() == first["numbers"].tolist()
    assert first["last"].tolist() == [[2], [3], [3]]
    assert (first["images"].shape, first["images"].dtype) == ((3, 3, 2, 2, 1), np.uint8)
    np.testing.assert_array_equal(second["numbers"], [np.arange(1, 41)])
    assert all(field.flags.writeable for field in first.values())


def test_a_table_of_variable_length_is_not_one_of_fixed_length(serve, table):
    client = serve(table(signature=VARIABLE)).client()
    client.check_table(table(signature=VARIABLE))
    fixed = replay.ItemSignature(
        VARIABLE.columns, {name: field._replace(variable=False) for name, field in VARIABLE.fields.items()}
    )
    with pytest.raises(replay.ReplayError, match="differs .*`fields`"):
        client.check_table(table(signature=fixed))


def test_a_short_item_is_refused_by_a_table_of_fixed_length(serve, table):
    client = serve(table()).client()
    with client.writer(3) as writer:
        for t in range(3):
            writer.append({"float32": np.full(2, t, np.float32), "int32": np.array(t, np.int32)})
        writer.append({"image": np.zeros((2, 2, 1), np.uint8)})
        windows = {
            "step": replay.Window("float32", 0, 2),
            "image": replay.Window("image", 0, 1),
            "count": replay.Window("int32", 0, 1),
        }
        with pytest.raises(replay.ReplayError, match="does not fit table 'replay'"):
            writer.create_item("replay", 1.0, windows)


def test_a_checkpoint_brings_items_of_several_lengths_back(serve, table, tmp_path):
    config = table(signature=VARIABLE, sampler=replay.Fifo(), max_times_sampled=1)
    first = serve(config, checkpoint_directory=str(tmp_path))
    write_of_lengths(first.client(), [2, 5, 3])
    path = first.client().checkpoint()
    _, before = sample_all(first.client(), 3)
    _, after = sample_all(serve(config, restore_from=path).client(), 3)
    assert before["numbers"].tolist() == [[1, 2, 0, 0, 0], [1, 2, 3, 4, 5], [3, 4, 5, 0, 0]]
    np.testing.assert_equal(after, before)
    with pytest.raises(replay.ReplayError, match="differs .*`fields`"):
        replay.ReverbServer([table(sampler=replay.Fifo(), max_times_sampled=1)], restore_from=path)


def test_a_closed_sampler_takes_nothing_more_from_a_queue(serve, table, write):
    queue = table(rate_limiter=replay.Queue(100), sampler=replay.Fifo(), max_times_sampled=1)
    client = serve(queue).client()
    write(client, first=0, num_items=2)
    with client.sampler("replay") as sampler, pytest.raises(replay.ReplayTimeout):
        sampler.sample_batch(10, timeout_seconds=0.2)
    write(client, first=2, num_items=10)
    _, fields = sample_all(client, 10)
    assert fields["step"][:, 0, 0].tolist() == list(range(2, 12))


def test_what_came_for_a_larger_batch_is_in_the_smaller_ones_after_it(serve, table, write):
    queue = table(rate_limiter=replay.Queue(100), sampler=replay.Fifo(), max_times_sampled=1)
    client = serve(queue).client()
    taken = []
    with client.sampler("replay") as sampler:
        write(client, first=0, num_items=4)
        with pytest.raises(replay.ReplayTimeout):
            sampler.sample_batch(10, timeout_seconds=0.3)
        write(client, first=4, num_items=8)
        for batch_size in (1, 2, 9):
            taken += sampler.sample_batch(batch_size)[1]["step"][:, 0, 0].tolist()
    assert taken == list(range(12))


def test_an_exact_sampler_counts_what_was_asked_for_alone(serve, table, write):
    client = serve(table()).client()
    write(client, num_items=5)
    sample_all(client, 12)
    assert client.table_info("replay").sampled == 12


def test_a_new_client_and_an_other_process_see_the_same(server_process, write):
    client = replay.ReverbClient(server_process.address)
    write(client, num_items=3)
    other = replay.ReverbClient(server_process.address)
    assert other.table_info("replay").size == 3
    _, fields = sample_all(other, 4)
    assert fields["step"].shape == (4, 3, 2)


def cut_off(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def spoil_the_beginning(file):
    content = bytearray(file.read_bytes())
    content[0] ^= 0xFF
    file.write_bytes(content)


def replace_by_a_pipe(file):
    file.unlink()
    os.mkfifo(file)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("damage", [pathlib.Path.unlink, cut_off, spoil_the_beginning, replace_by_a_pipe])
@pytest.mark.parametrize("name", ["tables.tfrecord", "items.tfrecord", "chunks.tfrecord"])
def test_a_damaged_checkpoint_is_refused_in_a_sentence(serve, table, write, tmp_path, name, damage):
    client = serve(table(), checkpoint_directory=str(tmp_path)).client()
    write(client, num_items=30)
    path = pathlib.Path(client.checkpoint())
    damage(path / name)
    with pytest.raises(replay.ReplayError, match="is damaged: .*[^.][.] Restore an older one.$") as error:
        serve(table(), restore_from=str(path))
    assert "\n" not in str(error.value)


def test_a_description_of_tables_that_unpacks_to_gigabytes_is_refused(serve, table, tmp_path):
    path = pathlib.Path(serve(table(), checkpoint_directory=str(tmp_path)).client().checkpoint())
    packer = zlib.compressobj()
    # Blocks that refer to nothing before them, so one of them may be repeated: 1 GiB in all.
    first, other = (packer.compress(bytes(1 << 24)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    (path / "tables.tfrecord").write_bytes(first + 63 * other + packer.flush())
    with pytest.raises(replay.ReplayError, match="is cut off, or longer than 4194304 bytes"):
        serve(table(), restore_from=str(path))


def test_a_full_disk_is_a_sentence_and_nothing_half_written_is_left(
    serve, table, write, tmp_path, disk_that_ends_at
):
    client = serve(table(), checkpoint_directory=str(tmp_path)).client()
    write(client, num_items=3)
    with disk_that_ends_at(10), pytest.raises(replay.ReplayError, match="wrote no checkpoint: ") as raised:
        client.checkpoint()
    assert re.search(r"tfrecord cannot be written: .*\. Free some space or check", str(raised.value))
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.glob("*/*"))
    assert pathlib.Path(client.checkpoint(), "DONE").exists()


def test_a_restored_server_holds_what_was_asked_for_and_not_what_lies_about(serve, table, write, tmp_path):
    first = serve(table(), checkpoint_directory=str(tmp_path))
    write(first.client(), num_items=1)
    wanted = first.client().checkpoint()
    second = serve(table(), checkpoint_directory=str(tmp_path))
    write(second.client(), num_items=2)
    second.client().checkpoint()
    empty = serve(table(), checkpoint_directory=str(tmp_path))
    assert empty.client().table_info("replay").size == 0
    restored = serve(table(), checkpoint_directory=str(tmp_path), restore_from=wanted)
    assert restored.client().table_info("replay").size == 1


def test_a_checkpoint_that_is_missing_or_unfinished_is_refused(table, write, tmp_path):
    with pytest.raises(replay.ReplayError, match="`restore_from` must be a finished checkpoint"):
        replay.ReverbServer([table()], restore_from=str(tmp_path / "nowhere"))
    with replay.ReverbServer([table()], checkpoint_directory=str(tmp_path)) as server:
        write(server.client())
        path = pathlib.Path(server.client().checkpoint())
    (path / "DONE").unlink()
    with pytest.raises(replay.ReplayError, match="there is no file 'DONE'"):
        replay.ReverbServer([table()], restore_from=str(path))


def test_a_server_that_writes_no_checkpoint_leaves_no_file(table, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with replay.ReverbServer([table()], checkpoint_directory=str(tmp_path / "store")):
        pass
    assert [path.name for path in tmp_path.rglob("*")] == ["temporary"]


def test_with_too_few_open_files_a_server_is_refused_in_a_sentence():
    program = """
import resource
from minerva_acme import replay
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
for make in (lambda: replay.ReverbServer([TABLE]), lambda: replay.ReverbClient("localhost:1")):
    try:
        make()
    except replay.ReplayError as error:
        print(error)
"""
    program = program.replace(
        "TABLE",
        "replay.TableConfig(name='t', max_size=9, rate_limiter=replay.MinSize(1), signature="
        "replay.ItemSignature(columns={}, fields={}))",
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert re.fullmatch(r"Reverb needs .* 64 more open files, .* may have 40\..*: ulimit -n 4096", line)


def test_a_low_limit_of_open_files_is_raised_where_the_system_lets_it(serve, table, write):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 2000:
        pytest.skip("this system does not let it")
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 5, before[1]))
        client = serve(table()).client()
        write(client, num_items=3)
        assert client.table_info("replay").size == 3
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 1000
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
