"""The tests themselves: each one checks something, and they run on the cores that there are."""

import ast
import pathlib
import re
import subprocess
import sys

import pytest

from minerva_acme.machine import threads

# A call whose name starts so checks: pytest.raises, np.testing.assert_allclose, spec.validate, check_tape ..
CHECKS = ("assert", "check_", "compare_", "fail", "raises", "validate", "warns")


def checks_something(function: ast.FunctionDef) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
            if name.startswith(CHECKS):
                return True
    return False


def find_tests(source: str) -> dict[str, bool]:
    """The names of a file's tests, and whether they check something."""
    bodies, found = [ast.parse(source).body], {}
    for body in bodies:  # of the module and of its classes
        bodies += [node.body for node in body if isinstance(node, ast.ClassDef)]
        for node in body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found[node.name] = found.get(node.name, True) and checks_something(node)
    return found


def test_every_test_has_an_assertion_and_a_name_of_at_most_80_characters(repository: pathlib.Path) -> None:
    files = [*(repository / "tests").rglob("test_*.py"), *(repository / "minerva_acme/testing").rglob("*.py")]
    wrong = [
        f"{path.relative_to(repository)}: {name}"
        for path in sorted(files)
        for name, checks in find_tests(path.read_text()).items()
        if not checks or (len(name) > 80 and path.is_relative_to(repository / "tests"))
    ]
    assert not wrong, "\n".join(wrong)


def test_a_test_without_an_assertion_is_found() -> None:
    source = (
        "def test_a(): run()\ndef test_b(): assert run()\nclass C:\n def test_c(): np.testing.assert_equal()"
    )
    assert find_tests(source) == {"test_a": False, "test_b": True, "test_c": True}


@pytest.mark.parametrize(("num_cores", "num_workers"), [(1, 2), (2, 4), (64, 8)])
def test_more_processes_than_cores_run_the_tests_as_far_as_there_is_memory(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, num_cores: int, num_workers: int
) -> None:
    if not pytestconfig.pluginmanager.hasplugin("xdist"):
        pytest.skip("pytest-xdist is not installed, or is switched off")
    monkeypatch.setattr(threads, "num_cores", lambda: num_cores)
    assert pytestconfig.hook.pytest_xdist_auto_num_workers(config=pytestconfig) == num_workers


# Waits in Python, where a signal is heard, and in C for a mutex that its own thread holds, where none is.
HANGING = """
import ctypes
import time

def test_waits(): time.sleep(1000)

def test_is_run_after_it(): pass

def test_is_blocked():
    lock = ctypes.CDLL(None).pthread_mutex_lock
    mutex = ctypes.create_string_buffer(64)
    lock(mutex), lock(mutex)

def test_is_never_run(): pass
"""


def test_a_test_that_runs_out_of_time_is_a_failure_with_its_name_and_the_run_ends(
    repository: pathlib.Path, pytestconfig: pytest.Config, tmp_path: pathlib.Path
) -> None:
    if not pytestconfig.pluginmanager.hasplugin("xdist"):
        pytest.skip("pytest-xdist is not installed, or is switched off")
    makefile = (repository / "Makefile").read_text()
    (parallel,) = re.findall(r"^PARALLEL \?= --numprocesses auto (.*)$", makefile, re.MULTILINE)
    (tmp_path / "test_hanging.py").write_text(HANGING)
    (tmp_path / "test_others.py").write_text("def test_one(): pass\n")
    settings = ["-o", "timeout=0.5", "-o", "faulthandler_timeout=1.5"]
    settings += ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    command = [sys.executable, "-m", "pytest", "-c", repository / "setup.cfg", "--rootdir", tmp_path]
    done = subprocess.run(
        [*command, *settings, "--numprocesses", "2", *parallel.split(), "-rf", tmp_path],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 1
    failures = re.findall(r"^FAILED .*?test_hanging.py::(\w+)", done.stdout, re.MULTILINE)
    assert failures == ["test_waits", "test_is_blocked"], done.stdout
    assert "2 failed, 2 passed" in done.stdout
    assert "in test_is_blocked" in done.stderr + done.stdout  # where it stood
