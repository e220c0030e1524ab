"""MyoSuite trains as the page on muscles says, by `make test-myosuite`, which installs it."""

import csv
import pathlib
import re
import shlex

import pytest

from minerva_acme.cli import main

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "how-to" / "muscles.md"
pytest.importorskip("myosuite")
pytestmark = pytest.mark.filterwarnings("ignore:Attach:UserWarning")


def test_the_commands_of_the_page_train_and_report_how_many_episodes_end_in_the_goal(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text().replace("\\\n", "")
    commands = [shlex.split(line) for line in re.findall(r"^minerva (.*)$", text, re.MULTILINE)]
    small = "--num-env-steps 150 --evaluation-episodes 2 --min-replay-size 50 --batch-size 4 --replay memory"
    shorter = {"train": small.split(), "video": ["--episodes", "1", "--every", "50"]}
    assert [command[0] for command in commands] == ["check-env", "train", "video"]
    for command in commands:
        assert main([*command, *shorter.get(command[0], [])]) == 0, (command, capsys.readouterr())
    rows = list(csv.DictReader((tmp_path / "runs/elbow/evaluator.csv").read_text().splitlines()))
    assert all(float(row["info/solved/last"]) in (0.0, 0.5, 1.0) for row in rows) and rows
