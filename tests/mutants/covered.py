"""Which quoted mutants are generated too, which are stale, and where a text went that moved."""

import ast
import itertools
import pathlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from . import generated
from .harness import Mutant, misplaced

# Characters that may lie between what both change, as where one takes out what a condition guards and the
# other the condition. Farther away none is looked for, which would take minutes.
_NEAR = 200


class Found(NamedTuple):
    """What became of the quoted mutants of a tree."""

    same: dict[str, str]  # of a quoted one's name, the name of the generated one that is the same program
    moved: dict[str, str]  # of a quoted one's name, the only file that holds its text now
    stale: list[str]  # what is wrong with each of the others that do not fit the tree


def look(quoted: Iterable[Mutant], root: pathlib.Path) -> Found:
    """Compares the quoted mutants with the tree and with what is generated from it."""
    texts = {file: (root / file).read_text(encoding="utf-8") for file in generated.library_files(root)}
    same: dict[str, str] = {}
    moved: dict[str, str] = {}
    stale: list[str] = []
    fitting: list[Mutant] = []
    for mutant in quoted:
        if texts.get(mutant.file, "").count(mutant.old) == 1:
            fitting.append(mutant)
            stale += misplaced([mutant], root)  # its tests
            continue
        elsewhere = [file for file, text in texts.items() if text.count(mutant.old) == 1]
        if len(elsewhere) == 1:
            moved[mutant.name] = elsewhere[0]
            fitting.append(mutant._replace(file=elsewhere[0]))
        else:
            stale += misplaced([mutant], root)
    fitting.sort(key=lambda mutant: mutant.file)
    for file, some in itertools.groupby(fitting, key=lambda mutant: mutant.file):
        same |= _same(list(some), generated.of_text(texts[file], file, ()), texts[file])
    return Found(same, moved, stale)


def _same(quoted: Sequence[Mutant], made: Sequence[Mutant], text: str) -> dict[str, str]:
    """The generated one that each quoted one of a file is: the same program, however it is written."""
    functions = _functions(text)
    found = {}
    for mutant in quoted:
        start = text.index(mutant.old)
        for other in made:
            assert other.at is not None
            if not _are_near(start, mutant.old, other.at, other.old):
                continue
            ends = (start + len(mutant.old), other.at + len(other.old))
            first, last = _around(functions, min(start, other.at), max(ends), len(text))
            programs = [_program(each.breaks(text)[first : last + _growth(each)]) for each in (mutant, other)]
            if programs[0] is not None and programs[0] == programs[1]:
                found[mutant.name] = other.name
                break
    return found


def _are_near(start: int, old: str, other_start: int, other_old: str) -> bool:
    return other_start <= start + len(old) + _NEAR and start - _NEAR <= other_start + len(other_old)


def _growth(mutant: Mutant) -> int:
    return len(mutant.new) - len(mutant.old)


def _functions(text: str) -> list[tuple[int, int]]:
    """Where each function's lines begin and end, the shortest first."""
    starts = [0, *itertools.accumulate(map(len, text.splitlines(keepends=True)))]
    found = [
        (
            starts[min([node.lineno, *(x.lineno for x in node.decorator_list)]) - 1],
            starts[node.end_lineno or 0],
        )
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
    ]
    return sorted(found, key=lambda span: span[1] - span[0])


def _around(functions: Sequence[tuple[int, int]], start: int, end: int, size: int) -> tuple[int, int]:
    """The shortest function that holds a range of the text, or the whole text."""
    return next(((first, last) for first, last in functions if first <= start and end <= last), (0, size))


def _program(text: str) -> str | None:
    """The program that some lines are, without what does nothing: `pass`, and `if False`."""
    try:
        return ast.dump(_Plain().visit(ast.parse(f"if True:\n{text}" if text[:1] == " " else text)))
    except SyntaxError:
        return None


class _Plain(ast.NodeTransformer):
    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        decides = isinstance(node.op, ast.Or)
        if any(isinstance(x, ast.Constant) and x.value is decides for x in node.values):
            return ast.Constant(decides)
        rest = [x for x in node.values if not (isinstance(x, ast.Constant) and x.value is not decides)]
        return rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)

    def visit_If(self, node: ast.If) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        does_nothing = all(isinstance(x, ast.Pass) for x in [*node.body, *node.orelse])
        if does_nothing:
            return ast.Pass()
        if isinstance(node.test, ast.Constant) and not node.test.value:
            return node.orelse or [ast.Pass()]
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        self.generic_visit(node)
        node.ifs = [x for x in node.ifs if not (isinstance(x, ast.Constant) and x.value)]
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list):
                kept = [x for x in statements if not isinstance(x, ast.Pass)]
                setattr(node, name, kept or ([ast.Pass()] if statements and name == "body" else []))
        return node


def rewrite(source: str, *, remove: Iterable[str], moved: dict[str, str]) -> str:
    """The text of `mutants.py` without some mutants, and with those that moved under their new file.

    Args:
        source: The text.
        remove: Names of those that go.
        moved: The new file of each that moved, by name.

    Returns:
        The text; `ruff format` sets its lines.
    """
    gone = {*remove}
    lines = source.splitlines(keepends=True)
    starts = [0, *itertools.accumulate(map(len, lines))]

    def place(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    cuts: list[tuple[int, int]] = []
    added: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Starred) and isinstance(node.value, ast.Call)):
            continue
        call = node.value
        if ast.unparse(call.func) != "of":
            continue
        _, tests, *breakages = call.args
        leaving = []
        for breakage in breakages:
            assert isinstance(breakage, ast.Call)
            name = ast.literal_eval(breakage.args[0])
            if name in moved and name not in gone:
                text = ast.unparse(breakage)
                added.append(f"    *of({moved[name]!r}, {ast.unparse(tests)}, {text}),\n")
            if name in gone or name in moved:
                leaving.append(breakage)
        for place_of in [node] if leaving and len(leaving) == len(breakages) else leaving:
            start = place(place_of.lineno, place_of.col_offset)
            end = place(place_of.end_lineno or 0, place_of.end_col_offset or 0)
            while source[end] in ", ":
                end += 1
            cuts.append((start, end))
    for start, end in sorted(cuts, reverse=True):
        source = source[:start] + source[end:]
    if added:
        head, mark, rest = source.rpartition("\nMUTANTS = [")
        source = f"{head}\nMOVED = [\n{''.join(added)}]\n{mark}\n    *MOVED,{rest}"
    return source
