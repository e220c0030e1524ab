"""Folders that killed drivers leave are removed by the next one. Needs no Ray."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from minerva_acme.distributed import ray_engine

CODE = """
import sys, time, tempfile, pathlib
from minerva_acme.distributed import ray_engine
folder = tempfile.mkdtemp(prefix="minerva-", dir=sys.argv[1])
owner = ray_engine.own_folder(folder)
(pathlib.Path(folder) / "session" / "logs").mkdir(parents=True)
(pathlib.Path(folder) / "session" / "logs" / "log").write_text("...")
(pathlib.Path(folder) / "latest").symlink_to(pathlib.Path(folder) / "session")
print(folder, flush=True)
time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The folder of temporary files."""
    monkeypatch.setattr(ray_engine, "_short_folder", lambda: str(tmp_path))
    return tmp_path


def test_a_killed_drivers_folder_is_removed_and_none_that_may_be_in_use(folder: pathlib.Path) -> None:
    command = [sys.executable, "-c", CODE, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            owned = pathlib.Path(process.stdout.readline().strip())
            others = [folder / "minerva-notes", folder / "another-run"]
            for other in others:
                other.mkdir()
            (folder / "minerva-file").write_text("")
            (folder / "minerva-link").symlink_to(owned)
            ray_engine.remove_left_folders()
            assert (owned / "session" / "logs" / "log").exists()
            assert (owned / "owner").read_text().startswith(f"process {process.pid} on ")
        finally:
            process.send_signal(signal.SIGKILL)
    ray_engine.remove_left_folders()
    assert not owned.exists()
    assert all(other.exists() for other in others) and (folder / "minerva-file").exists()


def test_a_folder_of_another_user_is_left(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = folder / "minerva-left"
    left.mkdir()
    os.close(ray_engine.own_folder(left))
    monkeypatch.setattr(os, "getuid", lambda: left.stat().st_uid + 1)
    ray_engine.remove_left_folders()
    assert left.exists()
    monkeypatch.undo()
    monkeypatch.setattr(ray_engine, "_short_folder", lambda: str(folder))
    ray_engine.remove_left_folders()
    assert not left.exists()
