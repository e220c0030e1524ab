"""What every test gets: one torch thread, the list of source files, a guard against what is left behind."""

import os
import pathlib
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch

import minerva_acme  # noqa: F401 -- sets the environment that torch reads when it loads
from minerva_acme.replay import backends

_GRACE_SECONDS = 2.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not backends.is_reverb_installed():
        reason = "Reverb is not installed: it has wheels for Python 3.11 on x86-64 Linux"
        for item in items:
            if item.get_closest_marker("reverb"):
                item.add_marker(pytest.mark.skip(reason=reason))


def _golden_cases(file: str) -> list[dict[str, torch.Tensor]]:
    folder = os.environ.get("MINERVA_GOLDEN_DIR") or pathlib.Path(__file__).resolve().parent / "golden"
    with np.load(pathlib.Path(folder, file)) as arrays:
        cases: list[dict[str, torch.Tensor]] = [{} for _ in range(int(arrays["num_cases"]))]
        for key in arrays.files:
            if key != "num_cases":
                case, name = key.removeprefix("case").split("/")
                cases[int(case)][name] = torch.from_numpy(np.asarray(arrays[key]))
    return cases


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    # A test marked `golden(file)` runs with every `case` of that file.
    marker = metafunc.definition.get_closest_marker("golden")
    if marker is not None:
        metafunc.parametrize("case", _golden_cases(*marker.args))


def pytest_configure() -> None:
    # Several threads gain nothing on tensors this small, and slow each other on a busy machine.
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def repository() -> pathlib.Path:
    """The repository's root."""
    return pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def source_files(repository: pathlib.Path) -> dict[str, pathlib.Path]:
    """Every module of the project by its installed name; a package by its `__init__.py`."""
    folders = {
        "minerva_acme": repository / "minerva_acme",
        "minerva_acme.adders": repository / "adders",
        "minerva_acme.agents": repository / "agents",
    }
    files = {}
    for package, folder in folders.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
            files[".".join((package, *parts))] = path
    return files


def _own_threads() -> set[threading.Thread]:
    return {
        thread
        for thread in threading.enumerate()
        if not thread.daemon and not thread.name.startswith("pytest_timeout")
    }


def _own_children() -> dict[int, str]:
    """This process's children and what they run; empty where the system does not tell (not Linux)."""
    children = {}
    for listing in pathlib.Path("/proc/self/task").glob("*/children"):
        for pid in listing.read_text().split():
            try:
                command = pathlib.Path("/proc", pid, "cmdline").read_text().replace("\0", " ").strip()
            except OSError:  # gone already
                continue
            # Python's own helper, which lives as long as the process.
            if "multiprocessing.resource_tracker" not in command:
                children[int(pid)] = command
    return children


@pytest.fixture
def threads_are_given_back() -> Iterator[None]:
    """For a test that sets torch's number of threads."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", autouse=True)
def leaves_no_thread_or_process_behind() -> Iterator[None]:
    """Fails the last test of a file if, with its fixtures closed, something still runs."""
    threads, children = _own_threads(), _own_children().keys()
    yield
    if parallel := sys.modules.get("minerva_acme.parallel"):
        parallel.stop_threads()  # kept for the next learner step, and no file's own
    deadline = time.monotonic() + _GRACE_SECONDS
    while True:
        left = [f"thread '{thread.name}'" for thread in _own_threads() - threads]
        left += [f"process {pid}: {line}" for pid, line in _own_children().items() if pid not in children]
        if not left or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    assert not left, f"This file's tests left behind: {'; '.join(left)}."
