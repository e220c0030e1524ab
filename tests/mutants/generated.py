"""Mutants that are made from the syntax tree: the mistakes that any line of code invites.

`_MAKERS` has a function for each kind of node, which gives what may stand there instead. Left alone is what
no test could call wrong: annotations, messages, docstrings, numbers that are tuned.
"""

import ast
import collections
import copy
import hashlib
import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from . import tests_of
from .harness import PACKAGES, Mutant

_BESIDE = {  # operators, and what is written in their place
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
}
_COMPARED = {  # the bound, then the opposite
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq, ast.Gt),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ORDERED = {ast.Lt: ast.Gt, ast.Gt: ast.Lt}  # the other way round, where a bound does not matter
_SWAPPED_CALLS = {
    "all": ("any",),
    "amax": ("amin",),
    "amin": ("amax",),
    "any": ("all",),
    "argmax": ("argmin",),
    "argmin": ("argmax",),
    "ceil": ("floor",),
    "floor": ("ceil",),
    "max": ("min",),
    "maximum": ("minimum",),
    "mean": ("sum",),
    "min": ("max",),
    "minimum": ("maximum",),
    "ones": ("zeros",),
    "ones_like": ("zeros_like",),
    "square": ("abs",),
    "sum": ("mean",),
    "zeros": ("ones",),
    "zeros_like": ("ones_like",),
}
# Methods that give back something of the kind of what they are called on, so that it may stand there itself.
_ON_THE_WAY = {
    *("abs", "astype", "clamp", "clamp_min", "clamp_max", "clip", "clone", "copy", "cumsum"),
    *("detach", "exp", "expm1", "float", "double", "log", "log1p", "log_softmax", "logsumexp"),
    *("masked_fill", "mean", "softmax", "sqrt", "rsqrt", "square", "squeeze", "sum", "tanh"),
    *("transpose", "unsqueeze", "sigmoid", "sort", "flip", "repeat", "movedim", "requires_grad_"),
    *("resolve", "strip", "lower", "reciprocal"),
}
_OF_NUMBERS = {"torch", "np", "math", "functional", "numpy"}
_ONE_OF_TWO = {"minimum", "maximum", "min", "max", "fmin", "fmax"}
_UNARY = {
    *("abs", "absolute", "clip", "clamp", "exp", "expm1", "log", "log1p", "log_softmax", "softmax"),
    *("sqrt", "square", "tanh", "softplus", "sigmoid", "relu", "elu", "cumsum", "rsqrt", "sorted"),
    *("reversed", "deepcopy", "floor", "ceil", "nan_to_num", "ascontiguousarray", "round", "exp2"),
    *("sign", "atanh"),
}
# Calls that give something of another kind than what they are given.
_OF_ANOTHER_KIND = {
    *("len", "str", "repr", "int", "type", "id", "hash", "iter", "next", "list", "set", "dict"),
    *("range", "any", "all", "add", "append", "extend", "pop", "get", "remove", "discard", "join"),
    *("index", "count", "split", "startswith", "endswith", "super", "callable", "vars"),
    *("enumerate", "bytes", "Path", "items", "update", "load_state_dict", "register_buffer"),
    *("arange", "zeros", "ones", "empty", "tuple", "sum", "max", "min", "restore", "observe"),
    *("put", "send", "write", "close", "isfinite", "copy_", "mul_", "add_", "setdefault"),
}
_ANY_ORDER = {
    *("isinstance", "issubclass", "hasattr", "getattr", "setattr", "delattr", "min", "max"),
    *("minimum", "maximum", "zip", "map", "filter", "range", "allclose", "isclose", "equal"),
    *("partial", "print", "cast", "check_shapes", "map_structure", "where", "enumerate"),
    *("isfinite", "reduce", "assert_same_structure", "open", "super"),
}
# Words that are easily taken for each other, in names that both occur in the file.
_TAKEN_FOR = [
    *(("online", "target"), ("low", "high"), ("minimum", "maximum"), ("min", "max"), ("first", "last")),
    *(("t", "tp1"), ("t", "tm1"), ("before", "after"), ("start", "end"), ("left", "right")),
    *(("inserted", "sampled"), ("terminated", "truncated"), ("mean", "stddev"), ("policy", "critic")),
    *(("policy", "value"), ("sampler", "remover"), ("reward", "discount"), ("online", "frozen")),
    *(("temperature", "alpha"), ("greedy", "behaviour"), ("raw", "executed"), ("found", "wanted")),
    *(("oldest", "newest"), ("steps", "episodes"), ("env", "learner"), ("self", "other")),
    *(("weight", "bias"), ("mean", "square")),
]
_PAIRS = [*_TAKEN_FOR, *((other, one) for one, other in _TAKEN_FOR)]
# Settings that make no difference to what a call gives.
_QUIET_KEYWORDS = {
    *("strict", "check", "parents", "exist_ok", "encoding", "errors", "ignore_errors", "daemon"),
    *("flush", "stacklevel", "fused", "foreach", "set_to_none", "inplace", "default", "help"),
    *("name", "cache", "text", "maxsize", "capture_output", "missing_ok", "linewidth", "precision"),
    *("indent", "non_blocking"),
}
_TALKERS = {
    *("notes", "logging", "_log", "logger", "_logger", "warnings", "print", "console", "parser", "log"),
    "lazy",  # imports by name
}
_NOT_LOOKED_AT = {"__repr__", "__str__", "__del__", "__getattr__", "__dir__"}
_OPTIONAL_KEYWORDS = _OF_NUMBERS  # calls whose keywords have defaults


_BESIDE_SHOWN = 16  # characters of a line on either side of what is changed
_LONGEST_SHOWN = 60


# Expressions that need no brackets, whatever they stand in; those of a tuple are written with it.
_WHOLE = (
    *(ast.Name, ast.Constant, ast.Call, ast.Attribute, ast.Subscript, ast.Tuple, ast.List, ast.Set, ast.Dict),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


class Change(NamedTuple):
    """What may stand in the place of a node."""

    start: tuple[int, int]  # line and byte of the line, as in the tree
    end: tuple[int, int]
    old: str  # as `ast.unparse` writes it
    new: str


def all_of(root: pathlib.Path) -> list[Mutant]:
    """The generated mutants of the files that tests can judge, in their order."""
    files = (file for file in library_files(root) if tests_of.tests_of(file, root))
    return [mutant for file in files for mutant in of_file(file, root)]


def library_files(root: pathlib.Path) -> list[str]:
    """The files of the library, from its root."""
    return sorted(
        path.relative_to(root).as_posix() for name in PACKAGES for path in (root / name).rglob("*.py")
    )


def of_file(file: str, root: pathlib.Path) -> list[Mutant]:
    """The generated mutants of a file."""
    text = (root / file).read_text(encoding="utf-8")
    return of_text(text, file, tests_of.tests_of(file, root))


def of_text(text: str, file: str, tests: tuple[str, ...]) -> list[Mutant]:
    """The generated mutants of a text, each with the place where it stands."""
    lines = text.splitlines(keepends=True)
    starts = [0, *itertools.accumulate(map(len, lines))]
    encoded = [line.encode() for line in lines]

    def place(position: tuple[int, int]) -> int:
        line, byte = position
        return starts[line - 1] + len(encoded[line - 1][:byte].decode())

    seen: collections.Counter[tuple[str, ...]] = collections.Counter()
    mutants = []
    for where, change in _Walk(ast.parse(text)).changes():
        start, end = place(change.start), place(change.end)
        shown = _shown(text, start, end, change.new)
        key = (file, where, change.old, change.new, *shown)
        seen[key] += 1
        number = f" #{seen[key]}" if seen[key] > 1 else ""
        digest = hashlib.sha256("\0".join([*key, number]).encode()).hexdigest()[:8]
        name = f"{file} {where}: {shown[0]} -> {shown[1]}{number} [{digest}]"
        mutants.append(Mutant(name, file, text[start:end], change.new, tests, start))
    return mutants


def _shown(text: str, start: int, end: int, new: str) -> tuple[str, str]:
    """What is changed and what it becomes, with a few characters of the line on either side."""
    line = text.rindex("\n", 0, start) + 1 if "\n" in text[:start] else 0
    line_end = text.find("\n", end)
    left = max(line, start - _BESIDE_SHOWN)
    right = min(len(text) if line_end < 0 else line_end, end + _BESIDE_SHOWN)
    return _cut(text[left:start], text[start:end], text[end:right]), _cut(
        text[left:start], new, text[end:right]
    )


def _cut(before: str, changed: str, after: str) -> str:
    changed = " ".join(changed.split())
    if len(changed) > _LONGEST_SHOWN:
        changed = f"{changed[: _LONGEST_SHOWN // 2]}...{changed[-_LONGEST_SHOWN // 2 :]}"
    return " ".join(f"{before}{changed}{after}".split())


class _Walk:
    """Goes through a tree and collects what may be changed."""

    def __init__(self, module: ast.Module) -> None:
        self._module = module
        self._names = {x.id for x in ast.walk(module) if isinstance(x, ast.Name)}
        self._names |= {x.arg for x in ast.walk(module) if isinstance(x, ast.arg)}
        self._attributes = {x.attr for x in ast.walk(module) if isinstance(x, ast.Attribute)}
        self._siblings: dict[str, set[str]] = collections.defaultdict(set)
        for x in ast.walk(module):
            if isinstance(x, ast.Attribute) and isinstance(x.ctx, ast.Load) and _is_config(x.value):
                self._siblings[ast.unparse(x.value)].add(x.attr)
        self._where: list[str] = []
        self._function: ast.FunctionDef | None = None
        self._found: dict[tuple[str, Change], None] = {}  # in their order, each once

    def changes(self) -> list[tuple[str, Change]]:
        """All, each with the name of the function or class in which it stands."""
        self._statements(self._module.body)
        return [*self._found]

    # What is gone through.

    def _statements(self, body: list[ast.stmt], *, is_all: bool = True) -> None:
        """Args: body: The statements. is_all: Whether a single one may be taken out."""
        for statement in body:
            if is_all or len(body) > 1:
                self._removal(statement)
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef():
                self._enter(node)
            case ast.ClassDef():
                self._where.append(node.name)
                for statement in node.body:
                    if not (_is_lone_number(statement) or _is_plain_value(statement)):
                        self._statement(statement)
                self._where.pop()
            case ast.If():
                if "TYPE_CHECKING" in ast.unparse(node.test) or "__name__" in ast.unparse(node.test):
                    return
                self._condition(node.test)
                self._statements(node.body, is_all=bool(node.orelse))
                self._statements(node.orelse)
            case ast.While():
                self._condition(node.test, (False,))
                if not any(isinstance(x, ast.Break | ast.Continue) for x in ast.walk(node)):
                    word = (node.lineno, node.col_offset + len("while"))
                    where = ".".join(self._where) or "module"
                    self._found[where, Change((node.lineno, node.col_offset), word, "while", "if")] = None
                self._statements(node.body)
                self._statements(node.orelse)
            case ast.For():
                self._iterable(node.iter)
                self._statements(node.body)
                self._statements(node.orelse)
            case ast.With():
                self._block(node)
                for item in node.items:
                    self._expression(item.context_expr)
                self._statements(node.body)
            case ast.Try():
                self._statements(node.body)
                for handler in node.handlers:
                    if handler.type is not None:
                        self._put(handler.type, ast.Name("ZeroDivisionError"))
                    self._statements(handler.body)
                self._statements(node.orelse)
                self._statements(node.finalbody)
            case ast.Return(value=ast.expr() as value):
                if self._gives_bool() and not isinstance(value, ast.Constant):
                    for constant in (True, False):
                        self._put(value, ast.Constant(constant))
                self._expression(value)
            case ast.Assign(targets=targets, value=value):
                if self._function is None and (
                    _is_lone_number(node) or "__all__" in map(ast.unparse, targets)
                ):
                    return
                for target in targets:
                    self._inside_target(target)
                self._expression(value)
            case ast.AnnAssign(annotation=annotation, value=ast.expr() as value):
                if "TypeAlias" not in ast.unparse(annotation):
                    self._expression(value)
            case ast.AugAssign():
                self._augmented(node)
                self._inside_target(node.target)
                self._expression(node.value)
            case ast.Expr(value=value):
                self._expression(value)
            case ast.Match():
                self._expression(node.subject)
                for case in node.cases:
                    self._statements(case.body)

    def _enter(self, node: ast.FunctionDef) -> None:
        if node.name in _NOT_LOOKED_AT or any("overload" in ast.unparse(x) for x in node.decorator_list):
            return
        outer, self._function = self._function, node
        self._where.append(node.name)
        for decorator in node.decorator_list:
            if "no_grad" in ast.unparse(decorator):
                # The sign before it stays, so that something must follow.
                self._add(decorator, "no_grad", "(lambda function: function)")
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self._expression(default)
        self._statements(node.body)
        self._where.pop()
        self._function = outer

    def _inside_target(self, target: ast.expr) -> None:
        for part in ast.walk(target):
            if isinstance(part, ast.Subscript):
                self._each(part, (other for other in _subscript(part) if isinstance(other, ast.Subscript)))
                self._index(part)

    def _index(self, node: ast.Subscript) -> None:
        for index in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
            self._expression(index)

    def _expression(self, node: ast.expr | None) -> None:
        """Changes an expression and all within it, but for what is only said."""
        if node is None or isinstance(node, ast.JoinedStr):
            return
        if isinstance(node, ast.Call) and (_talks(node) or _is_preset(node)):
            return
        if isinstance(node, ast.Constant | ast.UnaryOp) and _number(node) is not None:
            self._each(node, _numbers(node))
            return
        for kind, maker in _MAKERS:
            if isinstance(node, kind):
                self._each(node, maker(node))
        if isinstance(node, ast.Name | ast.Attribute):
            self._each(node, self._namesakes(node))
        if isinstance(node, ast.IfExp):
            self._expression(node.test)
            self._expression(node.body)
            self._expression(node.orelse)
            return
        if isinstance(node, ast.comprehension):
            return
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            for part in node.generators:
                self._iterable(part.iter)
                for test in part.ifs:
                    self._condition(test)
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name):
                self._expression(node.func)
            arguments = node.args[1:] if ast.unparse(node.func).endswith("cast") else node.args
            for argument in arguments:
                self._expression(argument)
            for keyword in node.keywords:
                if keyword.arg not in _QUIET_KEYWORDS:
                    self._expression(keyword.value)
            return
        if isinstance(node, ast.Lambda):
            self._expression(node.body)
            return
        if isinstance(node, ast.Subscript):
            self._expression(node.value)
            self._index(node)
            return
        if isinstance(node, ast.Slice):
            for bound in (node.lower, node.upper, node.step):
                if bound is not None and not (_number(bound) and bound is not node.step):
                    self._expression(bound)
            return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr) and not isinstance(getattr(child, "ctx", None), ast.Store):
                self._expression(child)

    # What is changed.

    def _each(self, node: ast.expr, others: Iterable[ast.expr]) -> None:
        for other in others:
            self._put(node, other)

    def _put(self, node: ast.expr, other: ast.expr) -> None:
        if node.end_lineno is None:
            return
        old, new = ast.unparse(node), ast.unparse(other)
        if old != new:
            self._add(node, old, new if isinstance(other, _WHOLE) else f"({new})")

    def _add(self, node: ast.expr | ast.stmt, old: str, new: str) -> None:
        assert node.end_lineno is not None and node.end_col_offset is not None
        where = ".".join(self._where) or "module"
        end = (node.end_lineno, node.end_col_offset)
        self._found[where, Change((node.lineno, node.col_offset), end, old, new)] = None

    def _condition(self, test: ast.expr, forced: tuple[bool, ...] = (True, False)) -> None:
        if not isinstance(test, ast.Constant):
            self._each(test, map(ast.Constant, forced))
            if isinstance(test, ast.Name | ast.Attribute):
                self._each(test, self._namesakes(test))
            else:
                self._expression(test)

    def _iterable(self, node: ast.expr) -> None:
        """Goes through the first alone."""
        if not _is_range(node):
            first = ast.parse(f"__import__('itertools').islice({ast.unparse(node)}, 1)", mode="eval")
            self._put(node, first.body)
        self._expression(node)

    def _removal(self, node: ast.stmt) -> None:
        if self._is_removable(node):
            self._add(node, ast.unparse(node), "pass")

    def _is_removable(self, node: ast.stmt) -> bool:
        match node:
            case ast.Expr(value=ast.Call() as call):
                return not _talks(call) and "super().__init__" not in ast.unparse(call)
            case ast.Raise() | ast.Break() | ast.Continue() | ast.AugAssign() | ast.Delete():
                return True
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return self._function is not None and (name in _names(value) or name in self._parameters())
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript() | ast.Tuple() as target]):
                if self._function is None:
                    return False
                parts = target.elts if isinstance(target, ast.Tuple) else [target]
                is_begun = self._function.name == "__init__"  # what is made there is made nowhere else
                kept = ast.Subscript if is_begun else ast.Subscript | ast.Attribute
                return all(isinstance(part, kept) for part in parts)
        return False

    def _parameters(self) -> set[str]:
        assert self._function is not None
        arguments = self._function.args
        return {x.arg for x in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}

    def _gives_bool(self) -> bool:
        function = self._function
        return (
            function is not None and function.returns is not None and ast.unparse(function.returns) == "bool"
        )

    def _augmented(self, node: ast.AugAssign) -> None:
        for kind in _BESIDE.get(type(node.op), ()):
            other = copy.copy(node)
            other.op = kind()
            self._add(node, ast.unparse(node), ast.unparse(other))
        plain = ast.Assign([node.target], node.value, lineno=node.lineno)
        self._add(node, ast.unparse(node), ast.unparse(plain))

    def _block(self, node: ast.With) -> None:
        """The block without what it stands in, where that has no name."""
        (item, *others) = node.items
        if others or item.optional_vars is not None:
            return
        context = item.context_expr
        head = Change(
            (node.lineno, node.col_offset),
            (context.end_lineno or 0, context.end_col_offset or 0),
            f"with {ast.unparse(context)}",
            "if True",
        )
        if context.lineno == node.lineno and context.col_offset == node.col_offset + len("with "):
            self._found[".".join(self._where) or "module", head] = None

    def _namesakes(self, node: ast.Name | ast.Attribute) -> Iterator[ast.expr]:
        """What it could be mistaken for: a name of the file with another word, or another setting."""
        if not isinstance(node.ctx, ast.Load):
            return
        name = node.id if isinstance(node, ast.Name) else node.attr
        known = self._names if isinstance(node, ast.Name) else self._attributes
        others = {other for other in _other_words(name) if other in known}
        if isinstance(node, ast.Attribute) and _is_config(node.value):
            siblings = self._siblings[ast.unparse(node.value)] - {name}
            alike = {x for x in siblings if set(x.split("_")) & set(name.split("_"))}
            others |= alike or set(sorted(siblings)[:1])
        for other in sorted(others):
            yield ast.Name(other) if isinstance(node, ast.Name) else ast.Attribute(node.value, other)


def _binary(node: ast.BinOp) -> Iterator[ast.expr]:
    if isinstance(node.left, ast.Constant | ast.JoinedStr) and not _number(node.left):
        if isinstance(node.left, ast.JoinedStr) or isinstance(node.left.value, str):
            return  # a text
    for kind in _BESIDE.get(type(node.op), ()):
        yield ast.BinOp(node.left, kind(), node.right)
    yield node.left
    if not isinstance(node.op, ast.Pow | ast.Mod | ast.FloorDiv):
        yield node.right
    if isinstance(node.op, ast.Sub):
        yield ast.BinOp(node.right, ast.Sub(), node.left)
    if isinstance(node.op, ast.Div):
        yield ast.BinOp(node.right, ast.Div(), node.left)


def _unary(node: ast.UnaryOp) -> Iterator[ast.expr]:
    yield node.operand


def _truth(node: ast.expr) -> Iterator[ast.expr]:
    yield ast.Constant(True)
    yield ast.Constant(False)


def _compare(node: ast.Compare) -> Iterator[ast.expr]:
    for i, op in enumerate(node.ops):
        kinds: set[Any] = {*_COMPARED[type(op)]}
        if type(op) in _ORDERED:
            kinds.add(_ORDERED[type(op)])
        if isinstance(node.comparators[i], ast.Constant) or isinstance(node.left, ast.Constant):
            kinds -= {ast.Gt} if isinstance(op, ast.Eq) else set()  # a word, or a number that is no bound
        for kind in sorted(kinds, key=lambda kind: kind.__name__):
            yield ast.Compare(node.left, [*node.ops[:i], kind(), *node.ops[i + 1 :]], node.comparators)
    if len(node.ops) == 2:
        (first, second), (middle, right) = node.ops, node.comparators
        yield ast.Compare(node.left, [first], [middle])
        yield ast.Compare(middle, [second], [right])


def _boolean(node: ast.BoolOp) -> Iterator[ast.expr]:
    yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    for i in range(len(node.values)):
        rest = [*node.values[:i], *node.values[i + 1 :]]
        yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)


def _choice(node: ast.IfExp) -> Iterator[ast.expr]:
    yield node.body
    yield node.orelse
    for constant in (True, False):
        yield ast.IfExp(ast.Constant(constant), node.body, node.orelse)


def _call(node: ast.Call) -> Iterator[ast.expr]:
    function, arguments = node.func, node.args
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    base = ast.unparse(function.value).rpartition(".")[2] if isinstance(function, ast.Attribute) else ""
    is_method = isinstance(function, ast.Attribute) and base not in _OF_NUMBERS
    for other in _SWAPPED_CALLS.get(name, ()):
        if isinstance(function, ast.Attribute):
            yield ast.Call(ast.Attribute(function.value, other), arguments, node.keywords)
        elif name not in ("sum",):
            yield ast.Call(ast.Name(other), arguments, node.keywords)
    if is_method and name in _ON_THE_WAY:
        assert isinstance(function, ast.Attribute)
        yield function.value
    plain = [x for x in arguments if not isinstance(x, ast.Starred | ast.GeneratorExp)]
    if not is_method and name in _ONE_OF_TWO and len(plain) == len(arguments) == 2:
        yield from plain
    if not is_method and name in _UNARY and plain:
        yield plain[0]
    if name == "where" and len(plain) == 3:
        yield plain[1]
        yield plain[2]
        yield ast.Call(function, [plain[0], plain[2], plain[1]], node.keywords)
    if name not in _ANY_ORDER:
        for i in range(len(arguments) - 1):
            one, other = arguments[i : i + 2]
            if not any(isinstance(x, ast.Starred | ast.Lambda | ast.JoinedStr) for x in (one, other)):
                yield ast.Call(function, [*arguments[:i], other, one, *arguments[i + 2 :]], node.keywords)
        if len(arguments) > 1 and not name[:1].isupper():
            yield ast.Call(function, arguments[:-1], node.keywords)
    if len(plain) == len(arguments) == 1 and not node.keywords:
        if name not in _OF_ANOTHER_KIND and not name[:1].isupper():
            yield plain[0]
        if is_method and isinstance(function, ast.Attribute):
            if isinstance(function.value, ast.Name) and isinstance(plain[0], ast.Name):
                if function.value.id not in ("self", "cls", "torch", "np", "math", "nn", "tree", "losses"):
                    yield ast.Call(ast.Attribute(plain[0], name), [function.value], [])
    if name == "map_structure" and len(plain) == 2:
        yield plain[1]
    if _is_range(node):
        for i, argument in enumerate(arguments[:2]):
            if len(arguments) == 1 and _number(argument) is None:
                yield ast.Call(function, [ast.Constant(1)], [])
            if _number(argument) is None:
                for op in (ast.Add(), ast.Sub()):
                    shifted = ast.BinOp(argument, op, ast.Constant(1))
                    yield ast.Call(function, [*arguments[:i], shifted, *arguments[i + 1 :]], [])
    if base in _OPTIONAL_KEYWORDS or name in _ON_THE_WAY:
        for i, keyword in enumerate(node.keywords):
            if keyword.arg not in _QUIET_KEYWORDS | {"dim", "axis", "dtype", "device", "out"}:
                yield ast.Call(function, arguments, [*node.keywords[:i], *node.keywords[i + 1 :]])


def _subscript(node: ast.Subscript) -> Iterator[ast.expr]:
    indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if isinstance(node.slice, ast.Name | ast.Attribute):
        yield ast.Subscript(node.value, ast.Constant(0))
    if isinstance(node.slice, ast.Constant) and node.slice.value == 0:
        yield ast.Subscript(node.value, ast.UnaryOp(ast.USub(), ast.Constant(1)))
    if isinstance(node.slice, ast.Slice) and (node.slice.lower or node.slice.upper or node.slice.step):
        yield node.value
    for i, index in enumerate(indices):
        if isinstance(index, ast.Slice):
            for other in _slices(index):
                changed = [*indices[:i], other, *indices[i + 1 :]]
                whole = ast.Tuple(changed) if isinstance(node.slice, ast.Tuple) else other
                yield ast.Subscript(node.value, whole)


def _slices(node: ast.Slice) -> Iterator[ast.Slice]:
    lower, upper = node.lower, node.upper
    if lower is not None and _number(lower) is not None:
        for number in _numbers(lower):
            yield ast.Slice(number, upper, node.step)
    if upper is not None and _number(upper) is not None:
        for number in _numbers(upper):
            yield ast.Slice(lower, number, node.step)
    one = ast.Constant(1)
    minus_one = ast.UnaryOp(ast.USub(), one)
    if lower is not None and upper is None and node.step is None:
        yield ast.Slice(None, minus_one if _number(lower) == 1 else ast.UnaryOp(ast.USub(), lower))
        yield ast.Slice(None, lower)
    if upper is not None and lower is None and node.step is None:
        negative = isinstance(upper, ast.UnaryOp) and isinstance(upper.op, ast.USub)
        yield ast.Slice(upper.operand if negative and isinstance(upper, ast.UnaryOp) else upper, None)
    if lower is not None and upper is not None:
        yield ast.Slice(lower, None, node.step)
    if upper is not None or lower is not None:
        yield ast.Slice(None, None if lower is None else upper, node.step)
    if node.step is not None:
        yield ast.Slice(lower, upper, None)


def _dictionary(node: ast.Dict) -> Iterator[ast.expr]:
    for i in range(len(node.keys)):
        yield ast.Dict([*node.keys[:i], *node.keys[i + 1 :]], [*node.values[:i], *node.values[i + 1 :]])


def _collection(node: ast.Tuple | ast.List | ast.Set) -> Iterator[ast.expr]:
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        return
    items, kind = node.elts, type(node)
    if isinstance(node, ast.Tuple) and len(items) == 2 and not any(isinstance(x, ast.Starred) for x in items):
        if not all(isinstance(x, ast.Slice) for x in items):
            yield ast.Tuple([items[1], items[0]])
    is_list_of_names = all(isinstance(x, ast.Constant) and isinstance(x.value, str) for x in items)
    if len(items) > 1 and (is_list_of_names or not isinstance(node, ast.Tuple)):
        for i in range(len(items)):
            yield kind([*items[:i], *items[i + 1 :]])


def _numbers(node: ast.expr) -> Iterator[ast.expr]:
    value = _number(node)
    assert value is not None
    if isinstance(value, bool):
        others: list[float] = [not value]
    elif isinstance(value, int):
        others = {0: [1], 1: [0, 2], -1: [0, -2]}.get(value, [value + 1, value - 1])
    else:
        others = [1.0] if value == 0.0 else [0.0, 2.0 * value]
    for other in others:
        yield ast.Constant(other) if other >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-other))


_MAKERS: list[tuple[Any, Callable[[Any], Iterator[ast.expr]]]] = [
    (ast.BinOp, _binary),
    (ast.UnaryOp, _unary),
    ((ast.Compare, ast.BoolOp), _truth),
    (ast.Compare, _compare),
    (ast.BoolOp, _boolean),
    (ast.IfExp, _choice),
    (ast.Call, _call),
    (ast.Subscript, _subscript),
    (ast.Dict, _dictionary),
    ((ast.Tuple, ast.List, ast.Set), _collection),
]


def _number(node: ast.expr) -> float | None:
    """Its value, where it is a number with or without a sign; True and False are some."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _number(node.operand)
        return None if value is None else -value
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    return None


def _is_lone_number(node: ast.stmt) -> bool:
    """Whether a name is given a number, as one that is tuned."""
    return isinstance(node, ast.Assign | ast.AnnAssign) and (
        node.value is None or _number(node.value) is not None
    )


def _is_plain_value(node: ast.stmt) -> bool:
    """Whether it is a default of a field: those of a config are tuned."""
    return isinstance(node, ast.AnnAssign)


def _is_config(node: ast.expr) -> bool:
    return ast.unparse(node).rpartition(".")[2].lstrip("_") in ("config", "settings", "nets", "options")


def _is_range(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"


def _talks(call: ast.Call) -> bool:
    """Whether it only says something."""
    parts = ast.unparse(call.func).split("(")[0].split(".")
    return bool(_TALKERS & {*parts[:-1]}) or parts[-1] in {"print", "say", "warn"}


def _is_preset(call: ast.Call) -> bool:
    """Whether it makes a config of values that are tuned."""
    return not call.args and ast.unparse(call.func).endswith(("Config", "dict"))


def _names(node: ast.AST) -> set[str]:
    return {x.id for x in ast.walk(node) if isinstance(x, ast.Name)}


def _other_words(name: str) -> Iterator[str]:
    """The name with one word in place of one that it is mistaken for, or without it."""
    words = name.split("_")
    for i, word in enumerate(words):
        for one, other in _PAIRS:
            if word.lower() == one:
                yield "_".join([*words[:i], other.upper() if word.isupper() else other, *words[i + 1 :]])
        if word in ("target", "next"):
            yield "_".join([*words[:i], *words[i + 1 :]])
