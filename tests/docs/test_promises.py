"""Each promise and each feature of the pages has a test: one renamed, removed or reworded is found here."""

import pathlib
import re
import types


def test_each_promise_and_feature_has_a_test_and_each_marked_test_one_of_them(
    hooks: types.ModuleType, repository: pathlib.Path
) -> None:
    pages = [
        hooks.name_tests((repository / f"docs/{name}.md").read_text()) for name in ("promises", "expect")
    ]
    pages[0], _ = pages[0].split("\n## Longer tests\n")
    rows = re.findall(r"^\| (?!Promise |\| what ).*$", "\n".join(pages), re.MULTILINE)
    assert len(rows) > 70 + 35
    tests = [re.findall(r"`(tests/[\w/.:]+)`", row) for row in rows]
    assert [row for row, names in zip(rows, tests, strict=True) if len(names) != 1] == []
    marked = [name for names in hooks.promised().values() for name in names]
    assert sorted(name for (name,) in tests) == sorted(marked)
