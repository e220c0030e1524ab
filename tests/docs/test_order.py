"""The commands of a page work one after the other in an empty folder, as a reader would type them.

They are shortened: steps are divided by a number, and nothing is drawn or traced. So these tests say that
folders and checkpoints have the names that the later commands give them, and that no command meets another
one's run.
"""

import functools
import os
import pathlib
import re
import shlex
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch

from minerva_acme import experiments
from minerva_acme.cli import commands, demo, main, processes, video
from minerva_acme.experiments import progress_display
from minerva_acme.runs import policies, programs

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
SHORTER = 1_250  # divides the usual numbers of steps into multiples of PPO's eight environments
INTERRUPTED = "# press Ctrl-C"
# What is not about runs, and takes long or depends on the machine.
LEFT_OUT = ("minerva bench", "minerva check-env", "minerva doctor", "minerva verify", "make ")
STATUS = {"minerva list agents mppo": 1}  # a mistake, to see what is said

pytestmark = pytest.mark.usefixtures("short_episodes", "short_tasks")


def read(page: str) -> list[str]:
    """The command lines of a page, from its blocks or from the third column of its table."""
    text = (DOCS / page).read_text()
    cells = [line.split(" | ")[2] for line in text.splitlines() if re.match(r"\| \d+ \|", line)]
    if cells:
        return [command for cell in cells for command in re.findall(r"`([^`]+)`", cell)]
    blocks = re.findall(r"^```(\w*).*?\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    plain = [block for language, block in blocks if not language]
    return [line for block in plain for line in block.replace("\\\n", " ").splitlines()]


def shorten(words: list[str]) -> list[str]:
    """The words of a command with fewer steps and without what takes time; a run's identity is the same."""

    def divide(number: re.Match[str]) -> str:
        return str(max(1, int(number[0]) // SHORTER)).zfill(len(number[0]) if number[0][0] == "0" else 0)

    words = [re.sub(r"(?<![\w.-])\d{4,}\b", divide, word) for word in words]
    for flag, value in (("--stop-at", "0"), ("--stop-after-minutes", "1e-9")):
        if flag in words and words[words.index(flag) + 1] != "inf":
            words[words.index(flag) + 1] = value
    if "--environment-processes" in words:
        words.remove("--environment-processes")
    # Long episodes: the demo alone needs their return.
    episodes = 1 if "demo" in words or not any(word.startswith("dm_control/") for word in words) else 0
    more = {
        "train": "--log csv --replay memory --evaluation-period 40 --evaluation-environments 1",
        "sweep": "--log csv --replay memory --no-report",
        "demo": "--goal 0",
        "eval": "--episodes 1",
        "export": "--episodes 0",
        "publish": "--episodes 2",
    }
    words += more.get(words[0], "").split()
    return words + ["--evaluation-episodes", str(episodes)] * (words[0] in ("train", "sweep"))


def run_here(jobs: Any, *, watcher: Any, **_: Any) -> None:
    """Runs the jobs of a sweep in this process."""
    for index, job in enumerate(jobs):
        watcher.started(index)
        watcher.ended(index, main(list(job.words)))


def find_only(command: commands.Video) -> int:
    """Finds what would be filmed."""
    assert all(policies.find(command.directory, name).path.exists() for name in command.checkpoint)
    return 0


def trace_nothing(module: Any, inputs: Any) -> str:
    """Stands for `programs.export`: a program is its module's name."""
    return type(module).__name__


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """A context in which Ctrl-C is pressed during training."""
    shown = progress_display.ProgressDisplay.__call__

    def press(self: progress_display.ProgressDisplay, now: experiments.Progress) -> None:
        shown(self, now)
        if now.env_steps >= 16 and now.phase == "train":
            monkeypatch.setattr(progress_display.ProgressDisplay, "__call__", shown)
            os.kill(os.getpid(), signal.SIGINT)

    return lambda: monkeypatch.setattr(progress_display.ProgressDisplay, "__call__", press)


@pytest.mark.parametrize("page", ["expect.md", "quickstart.md", "how-to/runs.md", "how-to/evaluate.md"])
def test_the_commands_of_a_page_work_in_order_in_an_empty_folder(
    page: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    interrupt: Callable[[], Any],
    unpainted: Callable[[], None],
    own_modules_are_forgotten: None,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo.recording, "choose_renderer", lambda: None)  # for good, in this process
    monkeypatch.setattr(demo, "run", functools.partial(demo.run, words=shorten([*demo.TRAINING])))
    monkeypatch.setattr(video, "run", find_only)
    unpainted()
    monkeypatch.setattr(programs, "export", trace_nothing)
    monkeypatch.setattr(torch.export, "save", lambda program, file: pathlib.Path(file).write_text(program))
    monkeypatch.setattr(processes, "run_all", run_here)
    runs, played = 0, 0
    for line in read(page):
        if not line.startswith("minerva ") or line.startswith(LEFT_OUT):
            continue
        if line.endswith(INTERRUPTED):
            interrupt()
        words = shlex.split(line, comments=True)[1:]
        status = main(shorten(words))
        out, err = capsys.readouterr()
        assert status == STATUS.get(line, 0), (line, out, err)
        assert "has made all its" not in out, line  # there was something left to do
        assert ("To resume: minerva resume" in out) == line.endswith(INTERRUPTED), (line, out)
        found = len(list(tmp_path.rglob("checkpoints")))  # of runs: what is published has a run.json too
        trains = words[0] in ("train", "demo", "sweep") and "--dry-run" not in words
        assert (found > runs) == trains, f"{line}: another run's folder"
        runs, played = found, played + 1
    assert played >= 8 and runs >= 2
