"""The tests themselves: each one checks something."""

import ast
import pathlib

# A call whose name starts so checks: pytest.raises, np.testing.assert_allclose, spec.validate, check_tape ..
CHECKS = ("assert", "check_", "fail", "raises", "validate", "warns")


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
