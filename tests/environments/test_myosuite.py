"""MyoSuite trains as the page on muscles says, by `make test-myosuite`, which installs it."""

import csv
import importlib.util
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "how-to" / "muscles.md"


@pytest.mark.skipif(importlib.util.find_spec("myosuite") is None, reason="MyoSuite is not installed")
def test_the_pages_commands_train_film_and_report_how_many_episodes_end_in_the_goal(tmp_path):
    text = PAGE.read_text().replace("\\\n", "")
    commands = [shlex.split(line) for line in re.findall(r"^minerva (.*)$", text, re.MULTILINE)]
    small = "--num-env-steps 150 --evaluation-episodes 2 --min-replay-size 50 --batch-size 4 --replay memory"
    shorter = {"train": small.split(), "video": ["--episodes", "1", "--every", "50"]}
    assert [command[0] for command in commands] == ["check-env", "train", "video"]
    for command in commands:
        # Each in a process of its own, which chooses how to draw before it imports MuJoCo.
        words = [sys.executable, "-m", "minerva_acme", *command, *shorter.get(command[0], [])]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert {path.suffix for path in (tmp_path / "runs/elbow/videos").iterdir()} == {".mp4", ".gif"}
    rows = list(csv.DictReader((tmp_path / "runs/elbow/evaluator.csv").read_text().splitlines()))
    assert all(float(row["info/solved/last"]) in (0.0, 0.5, 1.0) for row in rows) and rows
