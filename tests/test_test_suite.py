"""The tests themselves: each one checks something, and they run on the cores that there are."""

import ast
import pathlib

import pytest

from minerva_acme import thread_settings

# A call whose name starts so checks: pytest.raises, np.testing.assert_allclose, spec.validate, check_tape ..
CHECKS = ("assert", "check_", "compare_", "fail", "raises", "validate", "warns")


def checks_something(function: ast.FunctionDef) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2].startswith(CHECKS):
            return True
    return False


def find_tests(source: str) -> list[ast.FunctionDef]:
    return [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def test_every_test_has_an_assertion(repository: pathlib.Path) -> None:
    files = [*(repository / "tests").rglob("test_*.py"), *(repository / "minerva_acme/testing").rglob("*.py")]
    empty = [
        f"{path.relative_to(repository)}: {function.name}"
        for path in sorted(files)
        for function in find_tests(path.read_text())
        if not checks_something(function)
    ]
    assert not empty, "\n".join(empty)


def test_a_test_without_an_assertion_is_found() -> None:
    source = "def test_a(): run()\ndef test_b(): assert run()\ndef test_c(): np.testing.assert_equal(1, 1)"
    assert [checks_something(function) for function in find_tests(source)] == [False, True, True]


@pytest.mark.parametrize(("num_cores", "num_workers"), [(1, 1), (2, 2), (64, 8)])
def test_as_many_processes_run_the_tests_as_there_are_cores_and_memory_for(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, num_cores: int, num_workers: int
) -> None:
    if not pytestconfig.pluginmanager.hasplugin("xdist"):
        pytest.skip("pytest-xdist is not installed, or is switched off")
    monkeypatch.setattr(thread_settings, "num_cores", lambda: num_cores)
    assert pytestconfig.hook.pytest_xdist_auto_num_workers(config=pytestconfig) == num_workers
