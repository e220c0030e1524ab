"""Each package says what is public: its `__all__`, sorted and complete."""

import ast
import importlib
import pathlib
import types
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def packages(source_files: dict[str, pathlib.Path]) -> dict[str, types.ModuleType]:
    return {
        name: importlib.import_module(name)
        for name, path in source_files.items()
        if path.name == "__init__.py"
    }


def bound_names(statements: list[ast.stmt]) -> Iterator[str]:
    """Yields what a package binds itself or imports from the project, also for the type checker alone."""
    for statement in statements:
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("minerva_acme"):
            yield from (alias.asname or alias.name for alias in statement.names)
        elif isinstance(statement, ast.ClassDef | ast.FunctionDef):
            yield statement.name
        elif isinstance(statement, ast.Assign):
            yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id
        elif isinstance(statement, ast.If):
            yield from bound_names(statement.body + statement.orelse)


def test_every_package_has_a_docstring_and_a_sorted_list(packages: dict[str, types.ModuleType]) -> None:
    for name, package in packages.items():
        assert package.__doc__, f"{name} has no docstring"
        assert hasattr(package, "__all__"), f"{name} has no `__all__`"
        assert package.__all__ == sorted(set(package.__all__)), f"`__all__` of {name} is not sorted"


def test_every_listed_name_can_be_imported(packages: dict[str, types.ModuleType]) -> None:
    missing = [
        f"{name}.{public}"
        for name, package in packages.items()
        for public in getattr(package, "__all__", ())
        if not hasattr(package, public)
    ]
    assert not missing


def test_every_public_name_is_listed(packages: dict[str, types.ModuleType]) -> None:
    unlisted = []
    for name, package in packages.items():
        assert package.__file__
        for bound in bound_names(ast.parse(pathlib.Path(package.__file__).read_text()).body):
            private = bound.startswith("_") or isinstance(getattr(package, bound), types.ModuleType)
            if not private and bound not in package.__all__:
                unlisted.append(f"{name}.{bound}")
    assert not unlisted
