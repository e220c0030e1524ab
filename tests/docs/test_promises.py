"""Each promise of docs/promises.md has a test: one that was renamed, removed or reworded is found here."""

import importlib.util
import pathlib
import re

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def test_each_promise_has_a_test_and_each_marked_test_a_promise() -> None:
    spec = importlib.util.spec_from_file_location("site_hooks", REPOSITORY / "docs" / "site_hooks.py")
    assert spec and spec.loader
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    page = hooks.name_tests((REPOSITORY / "docs/promises.md").read_text())
    promises, _ = page.split("\n## Longer tests\n")
    rows = re.findall(r"^\| (?!Promise ).*$", promises, re.MULTILINE)
    assert len(rows) > 70
    tests = [re.findall(r"`(tests/[\w/.:]+)`", row) for row in rows]
    assert [row for row, names in zip(rows, tests, strict=True) if len(names) != 1] == []
    marked = [name for names in hooks.promised().values() for name in names]
    assert sorted(name for (name,) in tests) == sorted(marked)
