"""Files that need not be trusted: of a size, a depth and finite numbers, and never waited for."""

import ast
import json
import math
import os
import pathlib
import re

import pytest

from minerva_acme.machine import reading

LIBRARY = [pathlib.Path(__file__).parents[2] / name for name in ("minerva_acme", "adders", "agents")]


def test_a_file_of_json_is_read(tmp_path):
    path = tmp_path / "a.json"
    value = {"a": [1, 2.5, None, True, "ä"], "b": {}, "c": 10**300}
    path.write_text(json.dumps(value))
    assert reading.json_file(path) == value == reading.json_text(json.dumps(value).encode())
    assert reading.json_text("[-Infinity]", infinite=True) == [-math.inf]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000 + "]" * 100_000, "nested at most 64 deep"),
        ("[" * 65 + "]" * 65, "nested at most 64 deep"),
        ('{"a":' * 65 + "1" + "}" * 65, "nested at most 64 deep"),
        ('{"a": [NaN]}', "must be finite, got nan"),
        ("Infinity", "must be finite, got inf"),
        ("-1e400", "must be finite, got -inf"),
        ("1" * 400, "must be finite, got one of 400 digits"),
        ("1" * 5000, "4300 digits"),
        ('"\\ud800"', "surrogates not allowed"),
        ('{"\\ud800": 1}', "surrogates not allowed"),
        ("{", "Expecting property name"),
        ("", "Expecting value"),
        (b"\xff\xfe\xfd", "codec can't decode"),
    ],
)
def test_what_no_reader_could_use_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        reading.json_text(text)


def test_infinite_numbers_and_nan_are_allowed_where_they_are_asked_for():
    for text in ("NaN", "[[-NaN]]", "1" * 400):
        with pytest.raises(ValueError):
            reading.json_text(text, infinite=True)
    assert len(reading.json_text("[" * 64 + "]" * 64)) == 1
    (found,) = reading.json_text("[NaN]", nan=True)
    assert math.isnan(found)


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "a.json"
    with open(path, "wb") as file:
        file.truncate(10**12)
    for read in (reading.json_file, reading.toml_file):
        with pytest.raises(ValueError, match="at most 33,554,432 bytes, got 1,000,000,000,000"):
            read(path)


def test_toml_has_the_same_limits(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text("a = inf\nb = [1, 2]")
    assert reading.toml_file(path) == {"a": math.inf, "b": [1, 2]}
    for text, message in (
        ("a = nan", "finite"),
        ("a = " + "[" * 65 + "]" * 65, "64 deep"),
        ("a = " + "[" * 100_000, "64 deep"),
        ("a =", "Invalid value"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            reading.toml_file(path)


@pytest.mark.timeout(20)
def test_only_a_regular_file_is_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match="not a regular file"):
            reading.open_file(tmp_path / name)
    with pytest.raises(OSError, match="not a regular file"):
        reading.json_file("/dev/zero")
    with pytest.raises(IsADirectoryError):
        reading.json_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        reading.json_file(tmp_path / "none")


def test_the_library_reads_json_and_toml_in_one_place():
    found = []
    for path in (path for folder in LIBRARY for path in sorted(folder.rglob("*.py"))):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if re.search(r"\b(json|tomllib)\.load", text) else ():
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr not in ("load", "loads"):
                continue
            called = ast.unparse(node.func)
            # A value that was just dumped is the library's own, and so are tasks and names that it brings.
            brings = path.name in ("tasks.py", "foreign_names.py")
            is_own = ast.unparse(node).startswith("json.loads(json.dumps(") or brings
            if called in ("json.load", "json.loads", "tomllib.load", "tomllib.loads") and not is_own:
                found.append(f"{path.name}: {ast.unparse(node)}")
    assert found == [
        "reading.py: json.loads(text)",
        "reading.py: tomllib.loads(_read(path).decode())",
        "env_kwargs.py: tomllib.loads(f'value = {text}')",  # what was typed
    ]
