"""Each promise of docs/promises.md has a test: one that was renamed, removed or reworded is found here."""

import pathlib
import re
import types


def test_each_promise_has_a_test_and_each_marked_test_a_promise(
    hooks: types.ModuleType, repository: pathlib.Path
) -> None:
    page = hooks.name_tests((repository / "docs/promises.md").read_text())
    promises, _ = page.split("\n## Longer tests\n")
    rows = re.findall(r"^\| (?!Promise ).*$", promises, re.MULTILINE)
    assert len(rows) > 70
    tests = [re.findall(r"`(tests/[\w/.:]+)`", row) for row in rows]
    assert [row for row, names in zip(rows, tests, strict=True) if len(names) != 1] == []
    marked = [name for names in hooks.promised().values() for name in names]
    assert sorted(name for (name,) in tests) == sorted(marked)
