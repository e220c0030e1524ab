"""Each package says what is public: its `__all__`, sorted and complete."""

import ast
import importlib
import json
import pathlib
import pydoc
import subprocess
import sys
import types
from collections.abc import Iterator

import pytest

import minerva_acme
from minerva_acme import agents, experiments
from minerva_acme.agents import registry


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


LAZY = """
import importlib, json, sys
listed = [dir(importlib.import_module(name)) for name in sys.argv[1:]]
print(json.dumps(["torch" in sys.modules, listed]))
"""


def test_a_lazy_package_lists_its_public_names_and_loads_nothing_for_that() -> None:
    names = ["minerva_acme", "minerva_acme.agents", "minerva_acme.experiments"]
    done = subprocess.run([sys.executable, "-c", LAZY, *names], capture_output=True, text=True, check=True)
    is_torch_loaded, listed = json.loads(done.stdout)
    assert not is_torch_loaded
    for name, found in zip(names, listed, strict=True):
        assert {*importlib.import_module(name).__all__} <= {*found}, name
        assert "TYPE_CHECKING" not in found and "lazy" not in found


def test_every_lazy_package_lists_its_names(packages: dict[str, types.ModuleType]) -> None:
    lazy = {name: package for name, package in packages.items() if "__getattr__" in vars(package)}
    assert len(lazy) > 10
    for name, package in lazy.items():
        assert {*package.__all__} <= {*dir(package)}, name
        assert [listed for listed in dir(package) if not hasattr(package, listed)] == [], name


def test_the_library_lists_its_packages_and_every_agent(packages: dict[str, types.ModuleType]) -> None:
    below = {name.removeprefix("minerva_acme.") for name in packages if name.count(".") == 1}
    assert below - {"cli"} <= {*dir(minerva_acme)}
    assert {"agents", "environments", "experiments", "load_policy", "plotting", "runs"} <= {
        *dir(minerva_acme)
    }
    assert {*registry.AGENTS, "off_policy", "on_policy"} <= {*dir(agents)}


def test_a_misspelt_name_of_a_lazy_package_is_an_error_that_python_can_explain() -> None:
    with pytest.raises(
        AttributeError, match="'minerva_acme.experiments' has no attribute 'run_experimnt'"
    ) as at:
        experiments.run_experimnt  # noqa: B018
    assert (at.value.name, at.value.obj) == ("run_experimnt", experiments)


def test_the_help_of_a_package_says_how_it_is_used() -> None:
    text = pydoc.render_doc(experiments, renderer=pydoc.plaintext)
    for part in ("run_experiment(", "class ExperimentConfig", "class StopRun", "directory="):
        assert part in text
