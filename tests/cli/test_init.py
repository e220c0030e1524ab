"""`minerva init`: a folder that trains and whose tests pass as it stands."""

import pathlib
import re
import subprocess
import sys
import tomllib
from typing import Any

import pytest

from minerva_acme.cli import init, main

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
NAME = "my_first_agent"


@pytest.fixture
def folder(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    own_modules_are_forgotten: None,
) -> pathlib.Path:
    """The folder that `minerva init` writes; what it printed lies beside it."""
    monkeypatch.chdir(tmp_path)
    assert main(["init", NAME]) == 0
    (tmp_path / "printed").write_text(capsys.readouterr().out)
    return tmp_path / NAME


@pytest.mark.promise("Your own agent")
def test_the_printed_commands_train_and_evaluate(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = (folder.parent / "printed").read_text()
    commands = [line.strip() for line in printed.splitlines() if line.startswith("    ")]
    assert commands[:3] == [f"cd {NAME}", "pip install pytest", "python -m pytest"]
    assert [line.split()[1] for line in commands[3:]] == ["check-env", "train", "eval"]
    assert "\n".join(commands[1:]) in (folder / "README.md").read_text()
    monkeypatch.chdir(folder)
    for line in commands[3:]:
        words = line.replace("10000", "100").split()[1:]
        if words[0] == "train":
            words += ["--batch-size", "8", "--min-replay-size", "50", "--evaluation-episodes", "1"]
            words += ["--replay", "memory", "--log", "csv"]
        if words[0] == "eval":
            words += ["--episodes", "1"]
        assert main(words) == 0, line
    out = capsys.readouterr().out
    assert "wrong" not in re.sub("0 wrong", "", out) and "dqn" in out
    assert (folder / "runs" / "first" / "run.json").exists()


# The quick one trains for long enough to be saved and loaded.
SHORTER = {
    "min_replay_size=200, exploration_steps=1_500": "min_replay_size=50",
    "3_000": "100",
    "> 20.0": "< 41",
}


@pytest.mark.parametrize(
    "shorter", [SHORTER, pytest.param({}, marks=pytest.mark.learning)], ids=["quick", "whole"]
)
def test_its_own_tests_pass(
    folder: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    shorter: dict[str, str],
) -> None:
    monkeypatch.chdir(folder)
    file = folder / f"test_{NAME}.py"
    for long, short in shorter.items():
        assert long in file.read_text()
        file.write_text(file.read_text().replace(long, short))
    status = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:timeout", "-p", "no:xdist"])
    said = capsys.readouterr().out
    assert status == 0, said
    assert int(re.search(r"(\d+) passed", said)[1]) > 8  # type: ignore[index]


def test_the_page_on_composing_shows_what_is_written() -> None:
    page = (REPOSITORY / "docs" / "composing.md").read_text()
    files = init.render("my_dqn")
    for mark, name in {"python my_dqn": "my_dqn.py", "toml": "pyproject.toml"}.items():
        (block,) = re.findall(rf"^```{mark}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
        assert block == files[name]
    for name in files:
        assert f"`{name}`" in page


def test_every_file_has_the_name(folder: pathlib.Path) -> None:
    assert {path.name for path in folder.iterdir()} == {
        f"{NAME}.py",
        f"{NAME}_environment.py",
        f"test_{NAME}.py",
        "pyproject.toml",
        "README.md",
    }
    text = "".join(path.read_text() for path in folder.iterdir())
    assert "my_dqn" not in text and "my-dqn" not in text and NAME in text
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["name"] == "my-first-agent"
    assert project["project"]["entry-points"] == {"minerva_acme.agents": {NAME: f"{NAME}:DQNBuilder"}}
    for module in project["tool"]["setuptools"]["py-modules"]:
        assert (folder / f"{module}.py").exists()


@pytest.mark.parametrize("words", ["check --select B,E,F,N,SIM,UP", "format --check"])
def test_what_is_written_keeps_the_style(folder: pathlib.Path, words: str) -> None:
    command = ["-m", "ruff", *words.split(), "--isolated", "--line-length", "110", "--no-cache", "."]
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


NAMES: list[tuple[str, str]] = [
    ("my-agent", "`name` must be the name of a Python module, .* got 'my-agent'. For example: minerva init"),
    ("2nd", "must be the name of a Python module"),
    ("class", "must be the name of a Python module"),
    ("my_", "must be the name of a Python module"),
    ("a/b", "must be the name of a Python module"),
    ("", "must be the name of a Python module"),
    ("random", r"Python already has a module random \(.*random.py\), which would be imported instead"),
    ("torch", "Python already has a module torch"),
    ("dqn", "`name` must be new, but there is an agent dqn. Choose another"),
    ("taken", "`name` must be new, but taken exists here. Choose another, or remove it"),
]


@pytest.mark.parametrize(("name", "message"), NAMES)
def test_a_name_that_would_not_work_is_told(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, call: Any, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    status, _, err = call("init", name)
    assert status == 2 and re.search(message, err), err
    assert [path.name for path in tmp_path.rglob("*")] == ["taken"]


def test_a_module_that_its_environment_would_hide_is_told(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, call: Any
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "own_environment.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path / "site")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    status, _, err = call("init", "own")
    assert status == 2 and "Python already has a module own_environment" in err
    assert not list((tmp_path / "here").iterdir())
