"""The tests that docs/promises.md names exist: a promise whose test was renamed or removed is found here."""

import ast
import pathlib
import re

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (REPOSITORY / "docs/promises.md").read_text())


def functions(path):
    tree = ast.parse((REPOSITORY / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_promise_names_a_test():
    page, _ = (REPOSITORY / "docs/promises.md").read_text().split("\n## Figures\n")
    rows = [line for line in page.splitlines() if re.match(r"\| (?!Promise |-)", line)]
    assert len(rows) > 40
    assert [row for row in rows if row.count(" | ") < 3 or "tests/" not in row.split(" | ")[2]] == []


@pytest.mark.parametrize("path", sorted({path for path, _ in NAMED}))
def test_the_tests_that_promises_name_exist(path):
    there = functions(path)
    assert {name for named, name in NAMED if named == path and name} <= there
