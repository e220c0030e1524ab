"""The tests that docs/promises.md names exist: a promise whose test was renamed or removed is found here."""

import pathlib
import re

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PAGE, _ = (REPOSITORY / "docs/promises.md").read_text().split("\n## Longer tests\n")
ROWS = [line for line in PAGE.splitlines() if re.match(r"\| (?!Promise |-)", line)]
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def functions(path: str) -> set[str]:
    return {*re.findall(r"^ *def (\w+)", (REPOSITORY / path).read_text(), re.MULTILINE)}


def test_every_promise_names_one_test() -> None:
    assert len(ROWS) > 75
    cells = [re.split(r" \| ?", row.strip("| ") + " | ") for row in ROWS]
    assert [row for row, columns in zip(ROWS, cells, strict=True) if not NAMED.fullmatch(columns[1])] == []


def test_the_tests_that_promises_name_exist() -> None:
    named = [match.groups() for row in ROWS for match in NAMED.finditer(row)]
    there = {path: functions(path) for path, _ in named}
    assert [f"{path}::{name}" for path, name in named if name and name not in there[path]] == []
