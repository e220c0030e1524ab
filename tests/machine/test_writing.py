import errno
import os

import numpy as np
import pytest
import torch

from minerva_acme.machine import writing

SAVES = {"torch": torch.save, "numpy": lambda state, file: np.savez(file, **state)}


def test_a_piece_that_does_not_fit_is_not_half_there(tmp_path, disk_that_ends_at):
    path = tmp_path / "rows"
    file = writing.Appended(path)
    file.write(b"first\n")
    with (
        disk_that_ends_at(10),
        pytest.raises(OSError, match=r"rows cannot be written: File too large, .*B"),
    ):
        file.write(b"second\n")
    assert path.read_bytes() == b"first\n"
    file.write(b"third\n")
    file.close()
    assert path.read_bytes() == b"first\nthird\n"


def test_a_file_that_cannot_be_replaced_stays_as_it_was_and_nothing_is_left(tmp_path, disk_that_ends_at):
    path = tmp_path / "run.json"
    writing.replace(path, [b"old"])
    with (
        disk_that_ends_at(10),
        pytest.raises(OSError, match=r"json cannot be written: .* Free some space"),
    ):
        writing.replace(path, [b"new", b"1234567890"])
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["run.json"]


@pytest.mark.parametrize("save", SAVES.values(), ids=list(SAVES))
@pytest.mark.parametrize("num_bytes", [0, 100, 2000])
def test_writers_of_archives_end_quietly_where_the_disk_is_full(
    tmp_path, save, num_bytes, capfd, disk_that_ends_at
):
    state = {"a": torch.arange(500.0), "b": torch.zeros(3)}
    with disk_that_ends_at(num_bytes), pytest.raises(OSError) as raised:  # noqa: SIM117
        with writing.Output(tmp_path / "state") as file:
            save(state, file)
    assert raised.value.errno == errno.EFBIG
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("save", SAVES.values(), ids=list(SAVES))
def test_an_archive_has_the_bytes_that_a_plain_file_would_have(tmp_path, save, monkeypatch):
    monkeypatch.setattr("time.localtime", lambda *unused: (2026, 1, 1, 0, 0, 0, 0, 0, 0))
    state = {"a": torch.arange(5000.0), "b": torch.zeros(3)}
    with writing.Output(tmp_path / "ours") as ours, open(tmp_path / "plain", "wb") as plain:
        save(state, ours)
        save(state, plain)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "plain").read_bytes()


def test_nothing_is_written_through_a_link(tmp_path):
    (tmp_path / "theirs").write_bytes(b"theirs")
    (tmp_path / "ours").symlink_to("theirs")
    for write in (writing.Appended, lambda path: writing.replace(path, [b"ours"])):
        with pytest.raises(ValueError, match=r"ours must be .*, got a symbolic link to theirs"):
            write(tmp_path / "ours")
    # Nor through the name that a file has while it is written.
    (tmp_path / ".new.new").symlink_to("theirs")
    writing.replace(tmp_path / "new", [b"ours"])
    assert (tmp_path / "new").read_bytes() == b"ours"
    assert (tmp_path / "theirs").read_bytes() == b"theirs"
