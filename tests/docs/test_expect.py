"""The page of what people expect: all of it is there, its commands are ours, its tests exist."""

import importlib
import pathlib
import re
import shlex

import pytest

from minerva_acme.cli import parsing

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (REPOSITORY / "docs" / "expect.md").read_text().splitlines()
    if re.match(r"\| \d+ \|", line)
]
COMMANDS = [command for row in ROWS for command in re.findall(r"`([^`]+)`", row[2])]
TESTS = [(row[0], test) for row in ROWS for test in re.findall(r"`([^`]+)`", row[3])]


def test_there_are_35_things_each_with_a_command_and_a_test() -> None:
    assert [row[0] for row in ROWS] == [str(number) for number in range(1, 36)]
    assert all(len(row) == 4 and row[1].startswith("**") for row in ROWS)
    assert [row[0] for row in ROWS if not re.search(r"`[^`]+`", row[2])] == []
    assert {number for number, _ in TESTS} == {row[0] for row in ROWS}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_to_be_tried_is_a_command_or_a_name_of_the_library(command: str) -> None:
    program, *arguments = shlex.split(command)
    if program == "minerva":
        assert type(parsing.parse(arguments)).__name__.lower() == arguments[0].replace("-", "")
    elif program == "make":
        assert re.search(rf"^{arguments[0]}:", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    else:
        module, _, name = program.rpartition(".")
        assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize(("number", "named"), TESTS)
def test_the_test_behind_it_exists(number: str, named: str) -> None:
    path, _, function = named.partition("::")
    found = REPOSITORY / path
    files = (
        [found] if found.is_file() else sorted(found.rglob("test_*.py")) + sorted(found.rglob("check*.py"))
    )
    source = "\n".join(file.read_text() for file in files)
    assert re.search(rf"^ *def {function or 'test_'}" + (r"\(" if function else ""), source, re.MULTILINE)
