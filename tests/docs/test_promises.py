"""The tests that docs/promises.md names exist: a promise whose test was renamed or removed is found here."""

import pathlib
import re

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (REPOSITORY / "docs/promises.md").read_text())


def functions(path):
    return {*re.findall(r"^ *def (\w+)", (REPOSITORY / path).read_text(), re.MULTILINE)}


def test_every_promise_names_a_test():
    page, _ = (REPOSITORY / "docs/promises.md").read_text().split("\n## Figures\n")
    rows = [line for line in page.splitlines() if re.match(r"\| (?!Promise |-)", line)]
    assert len(rows) > 40
    assert [row for row in rows if row.count(" | ") < 3 or "tests/" not in row.split(" | ")[2]] == []


def test_the_tests_that_promises_name_exist():
    there = {path: functions(path) for path, _ in NAMED}
    assert len(there) > 100
    assert [f"{path}::{name}" for path, name in NAMED if name and name not in there[path]] == []
