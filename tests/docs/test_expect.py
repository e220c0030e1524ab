"""The page of what people expect: all of it is there, its commands are ours, its tests exist."""

import importlib
import pathlib
import re
import shlex

from minerva_acme.cli import parsing

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (REPOSITORY / "docs" / "expect.md").read_text().splitlines()
    if re.match(r"\| \d+ \|", line)
]
COMMANDS = [command for row in ROWS for command in re.findall(r"`([^`]+)`", row[2])]
TESTS = dict(line.split(": ") for line in (REPOSITORY / "tests/docs/features.txt").read_text().splitlines())


def test_there_are_35_things_each_with_a_command_and_a_test() -> None:
    assert [row[0] for row in ROWS] == [str(number) for number in range(1, 36)]
    assert all(len(row) == 3 for row in ROWS)
    assert [row[0] for row in ROWS if not re.search(r"`[^`]+`", row[2])] == []
    assert list(TESTS) == [match[1] for row in ROWS if (match := re.match(r"\*\*(.+?)\*\*", row[1]))]


def is_there(command: str) -> bool:
    program, *arguments = shlex.split(command)
    if program == "minerva":
        return type(parsing.parse(arguments)).__name__.lower() == arguments[0].replace("-", "")
    if program == "make":
        makefile = (REPOSITORY / "Makefile").read_text()
        return re.search(rf"^{arguments[0]}:", makefile, re.MULTILINE) is not None
    module, _, name = program.rpartition(".")
    return hasattr(importlib.import_module(module), name)


def test_what_is_to_be_tried_is_a_command_or_a_name_of_the_library() -> None:
    assert len(COMMANDS) > 35
    assert [command for command in COMMANDS if not is_there(command)] == []


def is_a_test(named: str) -> bool:
    path, _, function = named.partition("::")
    found = REPOSITORY / path
    files = [found] if found.is_file() else [*found.rglob("test_*.py"), *found.rglob("check*.py")]
    pattern = re.compile(rf"^ *def {function or 'test_'}" + (r"\(" if function else ""), re.MULTILINE)
    return any(pattern.search(file.read_text()) for file in files)


def test_the_tests_behind_them_exist() -> None:
    assert [(feature, named) for feature, named in TESTS.items() if not is_a_test(named)] == []
