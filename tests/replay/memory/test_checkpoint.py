"""Files of replay in memory that are damaged, forged or of another version."""

import io
import json
import pathlib
import resource
import zipfile

import numpy as np
import pytest

from minerva_acme import replay

pytestmark = pytest.mark.promise("Forged replay in memory is refused before anything of its claimed size")

NUMBER = replay.ItemSignature(
    columns={"number": replay.ColumnSpec((), np.dtype(np.int64))},
    fields={"window": replay.FieldSpec("number", 3, variable=True)},
)
CONFIG = replay.TableConfig(
    name="replay",
    signature=NUMBER,
    max_size=100,
    rate_limiter=replay.MinSize(1),
    sampler=replay.Prioritized(0.7),
    remover=replay.Uniform(),
)
ROWS, NEXT = "rows/0/rows", "rows/0/next"
START, LENGTH, KEYS, TIMES = (
    f"items/0/{name}" for name in ("start/window", "length/window", "keys", "times")
)


@pytest.fixture
def path(tmp_path):
    """A checkpoint of 30 items."""
    with replay.MemoryServer([CONFIG], seed=1, checkpoint_directory=str(tmp_path)) as server:
        client = server.client()
        with client.writer(3) as writer:
            for t in range(40):
                writer.append({"number": np.array(t)})
                if t >= 10:
                    writer.create_item("replay", float(t % 3), {"window": replay.Window("number", t - 2, 3)})
        yield pathlib.Path(client.checkpoint())


def restore(path, config=CONFIG):
    with replay.MemoryServer([config], seed=1, restore_from=str(path)) as server:
        client = server.client()
        with client.writer(3) as writer, client.sampler("replay") as sampler:
            writer.append({"number": np.array(0)})
            writer.create_item("replay", 1.0, {"window": replay.Window("number", 0, 1)})
            return sampler.sample_batch(50, 5.0)


def forge(path, change_arrays=lambda arrays: None, change_described=lambda described: None):
    """Writes the file anew, as somebody who knows its format would."""
    with np.load(path / "memory.npz") as stored:
        arrays = dict(stored)
    described = json.loads(str(arrays.pop("described")))
    change_described(described)
    change_arrays(arrays)
    np.savez(path / "memory.npz", **{"described": np.array(json.dumps(described)), **arrays})


def check_refused(path, reason):
    return pytest.raises(
        replay.ReplayError, match=f"{path.name}' is damaged: .*{reason}.*Restore an older one.$"
    )


def test_a_forged_file_without_a_mistake_is_restored(path):
    forge(path)
    _, fields = restore(path)
    assert np.all(np.diff(fields["window"], axis=1)[:, 0] <= 1)


def test_a_header_that_asks_for_8_tib_is_refused_before_anything_is_allocated(path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<i8", "fortran_order": False, "shape": (1 << 40,)}
    )
    with zipfile.ZipFile(path / "memory.npz") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members[f"{ROWS}.npy"] = header.getvalue() + bytes(800)
    with zipfile.ZipFile(path / "memory.npz", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with check_refused(path, "must be 8796093022208 bytes as its header says, got 800"):
        restore(path)


def test_a_file_that_unpacks_to_more_than_itself_is_refused(path):
    with zipfile.ZipFile(path / "memory.npz") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path / "memory.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content + bytes(1 << 24 if "rows" in name else 0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with check_refused(path, "its arrays are larger than the file"):
        restore(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 13  # KiB


def test_a_pickle_is_refused_and_not_run(path, tmp_path):
    class Hostile:
        def __reduce__(self):
            return pathlib.Path.touch, (tmp_path / "executed",)

    forge(path, lambda arrays: arrays.update({ROWS: np.array([Hostile()], object)}))
    with check_refused(path, "must hold numbers or text, got Python objects"):
        restore(path)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("name", "place", "value", "reason"),
    [
        (START, 5, 1 << 30, "an item has rows outside of"),
        (START, 5, -1, "an item has rows outside of"),
        (LENGTH, 5, 0, "an item has rows outside of"),
        (LENGTH, 5, 1 << 30, "an item has rows outside of"),
        (NEXT, 0, 1 << 30, "an item has rows outside of"),
        (NEXT, 0, -1, "an item has rows outside of"),
        (TIMES, 5, -1, "must have 30 items, got 29"),
        (KEYS, 5, 1 << 60, "keys of its items must ascend"),
        ("items/0/priorities", 5, np.nan, "priorities of its items must be >= 0 and <= "),
        ("items/0/priorities", 5, -1.0, "priorities of its items must be >= 0 and <= "),
    ],
)
def test_an_index_out_of_range_is_refused(path, name, place, value, reason):
    forge(path, lambda arrays: arrays[name].__setitem__(place, value))
    with check_refused(path, reason):
        restore(path)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        (ROWS, np.zeros((3, 4), np.int64)),
        (ROWS, np.zeros(48, np.float32)),
        (NEXT, np.zeros((2, 2), np.int32)),
        (START, np.zeros(7, np.int32)),
        (KEYS, np.zeros(30, np.float64)),
        ("items/0/other", np.zeros(30)),
    ],
)
def test_an_array_of_another_shape_or_dtype_is_refused(path, name, array):
    forge(path, lambda arrays: arrays.update({name: array}))
    with check_refused(path, "must"):
        restore(path)


@pytest.mark.parametrize(
    ("number", "value"),
    [
        ("size", 31),
        ("size", -1),
        ("size", 1e9),
        ("_capacity", 10**12),
        ("_capacity", 0),
        ("_first", 40),
        ("_end", 10**30),
        ("sampled", None),
        ("inserted", True),
        ("_common_priority", "1e400"),
        ("_common_priority", []),
        ("generator", {}),
        ("generator", {"bit_generator": "PCG64", "state": {"state": -1, "inc": 2**200}}),
    ],
)
def test_a_number_that_cannot_be_is_refused(path, number, value):
    forge(
        path,
        change_described=lambda described: described["tables"]["replay"]["numbers"].update({number: value}),
    )
    with check_refused(path, ""):
        restore(path)


def test_numbers_of_a_table_in_order_must_agree(tmp_path):
    config = replay.TableConfig(name="replay", signature=NUMBER, max_size=5, rate_limiter=replay.MinSize(1))
    with replay.MemoryServer([config], seed=1, checkpoint_directory=str(tmp_path)) as server:
        client = server.client()
        with client.writer(3) as writer:
            for t in range(20):
                writer.append({"number": np.array(t)})
                writer.create_item("replay", 1.0, {"window": replay.Window("number", t, 1)})
        path = pathlib.Path(client.checkpoint())
    forge(path)
    restore(path, config)
    forge(path, change_described=lambda described: described["tables"]["replay"]["numbers"].update(_first=3))
    with check_refused(path, "its numbers are inconsistent"):
        restore(path, config)


@pytest.mark.parametrize("part", ["tables", "stores", "format"])
@pytest.mark.parametrize("value", [None, 3.5, "text", [1], {"replay": 1}])
def test_a_description_of_another_form_is_refused(path, part, value):
    forge(path, change_described=lambda described: described.update({part: value}))
    with pytest.raises(
        replay.ReplayError, match=r"is damaged: |must hold |must have format 3, got 3.5: a newer"
    ):
        restore(path)


def test_a_description_that_is_no_json_is_refused(path):
    forge(path, lambda arrays: arrays.update(described=np.array("[" * 100_000)))
    with check_refused(path, ""):
        restore(path)


@pytest.mark.parametrize(("version", "age"), [(2, "an older"), (4, "a newer")])
def test_a_file_of_another_format_is_refused_in_a_sentence(path, version, age):
    forge(path, change_described=lambda described: described.update(format=version))
    message = (
        f"must have format 3, got {version}: {age} version of this library wrote it. Restore it with that"
    )
    with pytest.raises(replay.ReplayError, match=message):
        restore(path)


def test_a_flipped_bit_anywhere_is_refused_or_changes_nothing(path):
    original = (path / "memory.npz").read_bytes()
    expected = restore(path)[1]["window"]
    generator = np.random.default_rng(1)
    num_refused = 0
    for place in generator.integers(0, len(original), 100):
        flipped = bytearray(original)
        flipped[place] ^= 1 << int(generator.integers(8))
        (path / "memory.npz").write_bytes(flipped)
        try:
            found = restore(path)[1]["window"]
        except replay.ReplayError as error:
            assert "Restore " in str(error) and len(str(error).splitlines()) == 1
            num_refused += 1
        else:
            np.testing.assert_array_equal(found, expected)
    assert num_refused > 50


def test_a_full_disk_is_a_sentence_and_leaves_nothing_half_written(path, tmp_path, disk_that_ends_at, capfd):
    with replay.MemoryServer(
        [CONFIG], seed=1, restore_from=str(path), checkpoint_directory=str(tmp_path / "full")
    ) as server:
        client = server.client()
        reason = (
            r"wrote no checkpoint: .* cannot be written: .* are free there\. Free some space or check .*\.$"
        )
        with disk_that_ends_at(500), pytest.raises(replay.ReplayError, match=reason):
            client.checkpoint()
        assert capfd.readouterr() == ("", "")
        assert not list(tmp_path.glob("full/*/*"))
        assert pathlib.Path(client.checkpoint(), "memory.npz").exists()
