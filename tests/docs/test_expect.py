"""The page of what people expect: all of it is there, and its commands are ours."""

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


def test_there_are_35_things_each_with_a_command() -> None:
    assert [row[0] for row in ROWS] == [str(number) for number in range(1, 36)]
    assert all(len(row) == 3 for row in ROWS)
    assert [row[0] for row in ROWS if not re.search(r"`[^`]+`", row[2])] == []


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
