"""Public names are enough: examples, the code of pages, and agents use nobody else's underscore names.

A private name belongs to the package of the module that defines it. In an example or on a page everything of
the library is another's.
"""

import ast
import contextlib
import functools
import importlib
import inspect
import pathlib
import re
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from minerva_acme import adders, builders, learners
from minerva_acme.agents import off_policy, on_policy, registry

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
PYTHON = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = (
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md")),
    *(REPOSITORY / "docs").rglob("*.md"),
    *(REPOSITORY / "agents").rglob("*.md"),
)
# Documented, though with an underscore: the methods and fields of named tuples.
OF_NAMED_TUPLES = {"_asdict", "_field_defaults", "_fields", "_make", "_replace"}
ASKS_BY_NAME = {"delattr", "getattr", "hasattr", "setattr"}


class Found(NamedTuple):
    """A private name that is used outside of the package that it belongs to."""

    line: int
    name: str


def is_private(name: str) -> bool:
    is_special = not name.strip("_") or name.endswith("__") or name in OF_NAMED_TUPLES
    return name.startswith("_") and not is_special


def defined_in(tree: ast.AST) -> Iterator[str]:
    """Yields the private names of a tree's functions, classes and variables, and what it gives to `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and is_private(node.name):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and is_private(node.id):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value):
            yield from [node.attr] * is_private(node.attr)


def is_own(value: ast.expr) -> bool:
    """Whether an expression is `self`, `cls` or `super()`."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def uses(tree: ast.AST) -> Iterator[tuple[ast.expr, Found]]:
    """Yields the private names that are read or set, and what they are of."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            yield node.value, Found(node.lineno, node.attr)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ASKS_BY_NAME:
            match node.args:
                case [value, ast.Constant(value=str(name)), *_] if is_private(name):
                    yield value, Found(node.lineno, name)


def package_of(module: str) -> str:
    """The package that a module belongs to; a package belongs to itself."""
    return module if hasattr(sys.modules.get(module), "__path__") else module.rpartition(".")[0]


@functools.cache
def private_names(kind: type) -> frozenset[str]:
    """The private names of a class, those that its methods give to `self` included."""
    names = {name for name in vars(kind) if is_private(name)}
    with contextlib.suppress(OSError, TypeError):  # without a source, such as one written in C
        names |= {*defined_in(ast.parse(textwrap.dedent(inspect.getsource(kind))))}
    return frozenset(names)


def imported(tree: ast.Module) -> dict[str, Any]:
    """What a file imports of this library and of torch, by name."""
    names: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in (
            "minerva_acme",
            "torch",
        ):
            with contextlib.suppress(ImportError):
                exec(compile(ast.Module([node], []), "imports", "exec"), names)
    return names


def bases_of(node: ast.ClassDef, known: dict[str, Any]) -> Iterator[type]:
    """Yields the classes of other files that a class inherits; `known`: names, and classes of this file."""
    for base in node.bases:
        base = base.value if isinstance(base, ast.Subscript) else base
        try:
            found = eval(compile(ast.Expression(base), "base", "eval"), dict(known))
        except (AttributeError, NameError):
            continue  # of a package that is not installed
        if isinstance(found, ast.ClassDef):
            yield from bases_of(found, known)
        elif isinstance(found, type):
            yield found


def others_names(text: str, package: str = "", own_names: frozenset[str] = frozenset()) -> list[Found]:
    """The private names of others that a file uses.

    Args:
        text: The file.
        package: The package that it belongs to; "" for an example or a page.
        own_names: The private names that the package's files define.
    """
    tree = ast.parse(text)
    found = set(imported_names(tree, package))
    own_names = own_names | {*defined_in(tree)}
    found |= {use for _, use in uses(tree) if use.name not in own_names}
    own_classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    known = {**imported(tree), **own_classes}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            mro = {kind for base in bases_of(node, known) for kind in base.__mro__}
            theirs = {
                name
                for kind in mro
                if not package or package_of(kind.__module__) != package
                for name in private_names(kind)
            }
            found |= {use for value, use in uses(node) if is_own(value) and use.name in theirs}
            members = [part for part in node.body if not isinstance(part, ast.ClassDef)]
            found |= {
                Found(part.lineno, name)
                for part in members
                for name in defined_in(shell(part))
                if name in theirs
            }
    return sorted(found)


def shell(statement: ast.stmt) -> ast.stmt:
    """A method without its body; another statement as it is."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return ast.FunctionDef(statement.name, statement.args, [], [])
    return statement


def imported_names(tree: ast.Module, package: str) -> Iterator[Found]:
    """Yields the private modules and names that a file imports from other packages."""
    for node in ast.walk(tree):
        paths = []
        if isinstance(node, ast.ImportFrom):
            paths = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            paths = [alias.name for alias in node.names]
        for path in paths:
            parts = path.split(".")
            for index, part in enumerate(parts):
                if is_private(part) and not (package and ".".join(parts[:index]) == package):
                    yield Found(node.lineno, part)


@pytest.mark.parametrize("path", sorted((REPOSITORY / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_use_public_names_alone(path: pathlib.Path) -> None:
    assert others_names(path.read_text()) == []


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if PYTHON.search(page.read_text())],
    ids=lambda page: str(page.relative_to(REPOSITORY)),
)
def test_the_code_of_pages_uses_public_names_alone(page: pathlib.Path) -> None:
    assert others_names("\n".join(PYTHON.findall(page.read_text()))) == []


def test_agents_use_public_names_of_other_packages_alone(source_files: dict[str, pathlib.Path]) -> None:
    agents = {name: path for name, path in source_files.items() if name.startswith("minerva_acme.agents")}
    own: dict[str, set[str]] = {}
    for name, path in agents.items():
        importlib.import_module(name)
        own.setdefault(package_of(name), set()).update(defined_in(ast.parse(path.read_text())))
    found = {
        str(path.relative_to(REPOSITORY)): uses
        for name, path in agents.items()
        if (uses := others_names(path.read_text(), package_of(name), frozenset(own[package_of(name)])))
    }
    assert len(agents) > 30 and found == {}


# That each kind of use is found.

HEAD = """
import contextlib
from typing import NamedTuple
from minerva_acme import adders, builders, learners, networks
from minerva_acme.agents import mpo, off_policy
"""
PLANTED = {
    "an attribute of another's object": ("def f(learner):\n    return learner._kept", "_kept"),
    "one that is set": ("def f(builder):\n    builder._config = 1", "_config"),
    "by its name as text": ("def f(learner):\n    return getattr(learner, '_kept', None)", "_kept"),
    "a function of a module": ("learners.updates._clip([], 1.0)", "_clip"),
    "an import": ("from minerva_acme.learners.updates import _clip", "_clip"),
    "an import within a function": ("def f():\n    from minerva_acme.learners.updates import _clip", "_clip"),
    "a private module": ("from minerva_acme import _version", "_version"),
    "a module of a private package": ("import torch._dynamo.config", "_dynamo"),
    "self, where the base defines it": (
        "class Own(learners.ModuleLearner):\n    def step(self):\n        self._logger.write({})",
        "_logger",
    ),
    "an attribute that hides one of the base": (
        "class Own(learners.ModuleLearner):\n    def __init__(self):\n        self._modules = {}",
        "_modules",
    ),
    "a method that overrides one of a base further up": (
        "class Own(mpo.MPOBuilder):\n    def _make_variable_client(self, *parts):\n        return None",
        "_make_variable_client",
    ),
    "a class attribute": (
        "class Own(adders.BaseAdder):\n    _is_open = True\n    def other(self): ...",
        "_is_open",
    ),
    "super()": (
        "class Own(learners.LossLearner):\n    def other(self):\n        return super()._begin(None)",
        "_begin",
    ),
    "a base with type arguments": (
        "class Own(off_policy.TransitionBuilder[int, int]):\n    @property\n    def _by_priority(self): ...",
        "_by_priority",
    ),
    "by a class of the same file": (
        "class Base(adders.SequenceAdder): ...\nclass Own(Base):\n    def _begin(self): ...",
        "_begin",
    ),
    "a nested function's self": (
        "class Own(adders.BaseAdder):\n    def other(self):\n        return lambda: self._writer",
        "_writer",
    ),
}


@pytest.mark.parametrize(("text", "name"), PLANTED.values(), ids=PLANTED)
def test_a_private_name_of_another_package_is_found(text: str, name: str) -> None:
    assert [found.name for found in others_names(HEAD + text)] == [name]
    assert name in [found.name for found in others_names(HEAD + text, "minerva_acme.agents.own")]


@pytest.mark.parametrize(
    "text",
    [
        "class Own:\n    def __init__(self):\n        self._x = 1\n    def _f(self):\n        return self._x",
        "class Own(learners.ModuleLearner):\n    def step(self):\n        self._own = self.updates",
        "class Pair(NamedTuple):\n    x: int\n\nPair(1)._replace(x=2)._asdict()",
        "def _f(): ...\n\n_f()\nfor _ in (1, 2):\n    pass\nf = _f.__name__",
        "class A:\n    _x = 1\n\ndef f(a: A):\n    return a._x",
        "import no_such_package\n\nclass Own(no_such_package.Base):\n    _x = 1",
    ],
)
def test_private_names_of_ones_own_are_left_alone(text: str) -> None:
    assert others_names(HEAD + text) == []


def test_a_private_name_of_ones_own_package_is_left_alone() -> None:
    text = "from minerva_acme.agents.mpo import _own\nfrom minerva_acme.agents.mpo.losses import _f\n_f._x"
    assert others_names(text, "minerva_acme.agents.mpo", frozenset({"_x"})) == [Found(2, "_f")]


# That what is public has words.

SEAMS = (
    builders.AgentBuilder,
    builders.AgentPolicy,
    builders.ConfiguredBuilder,
    off_policy.OffPolicyBuilder,
    off_policy.TransitionBuilder,
    off_policy.SequenceBuilder,
    on_policy.OnPolicyBuilder,
    learners.ModuleLearner,
    learners.LossLearner,
    adders.BaseAdder,
    adders.SequenceAdder,
)


@pytest.mark.parametrize(
    "kind",
    [*SEAMS, *(entry.builder for entry in registry.AGENTS.values())],
    ids=lambda kind: kind.__name__,
)
def test_every_public_name_of_a_class_to_inherit_has_a_docstring(kind: type) -> None:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(node, ast.ClassDef)
    silent = [
        part.name
        for part in node.body
        if isinstance(part, ast.FunctionDef) and not part.name.startswith("_")
        if not inspect.getdoc(getattr(kind, part.name))
    ]
    for part, below in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            is_told = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            silent += [part.target.id] * (not is_told and not part.target.id.startswith("_"))
    assert silent == []
