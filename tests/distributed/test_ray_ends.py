"""How a run of real processes ends that cannot go well."""

import contextlib
import ctypes
import errno
import functools
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from minerva_acme import distributed, experiments
from minerva_acme.distributed import supervisor
from minerva_acme.runs import checkpointing
from tests.distributed import killing, small

pytestmark = [
    pytest.mark.ray,
    pytest.mark.reverb,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]


_END_SECONDS = 20.0  # that the end of a run may take


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Is in the environment of all processes that a test starts, and none may be left."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(killing.MARK, mark)
    yield mark
    killing.wait_until(lambda: not killing.processes(mark), 90.0)


class Crashing(small.Ramp):
    """Ends its process at its first step, as a broken simulator does."""

    def step(self, action: np.ndarray) -> Any:
        ctypes.string_at(0)
        return super().step(action)


def make(directory: pathlib.Path, **changes: Any) -> experiments.ExperimentConfig:
    settings: dict[str, Any] = vars(small.experiment(directory, small.sac_builder(), num_env_steps=300))
    return experiments.ExperimentConfig(**{**settings, **changes})


def test_an_evaluator_that_crashes_each_time_is_given_up_and_the_run_ends(
    tmp_path: pathlib.Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_MAX_BACKOFF_SECONDS", 0.0)
    config = make(tmp_path, evaluation_environment_factory=Crashing)
    result = distributed.run_distributed_experiment(config, num_actors=1)
    assert result.given_up == (
        "evaluator failed 6 times, the last time: its process died before it had done any work",
    )
    assert result.env_steps == 300 and result.after is None
    assert checkpointing.env_steps(checkpointing.find(tmp_path)) == 300


def test_the_last_actor_that_crashes_each_time_ends_the_run(
    tmp_path: pathlib.Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_MAX_BACKOFF_SECONDS", 0.0)
    config = make(
        tmp_path,
        environment_factory=Crashing,
        evaluation_environment_factory=small.Ramp,
        evaluation_period=0,
    )
    with pytest.raises(
        distributed.ProgramFailed,
        match="Node actor/0 failed 2 times, the last time: its process died before it had done any work",
    ):
        distributed.run_distributed_experiment(config, num_actors=1)


class Exiting(small.Ramp):
    """Ends its process without a word at its first step, and notes when."""

    def __init__(self, directory: pathlib.Path, seed: int) -> None:
        super().__init__(seed)
        self._notes = directory / "exits"

    def step(self, action: np.ndarray) -> Any:
        with self._notes.open("a") as file:
            file.write(f"{time.time()}\n")
        os._exit(0)


def test_actors_that_all_exit_at_their_first_step_end_the_run_after_two_tries(
    tmp_path: pathlib.Path, mark: str
) -> None:
    config = make(
        tmp_path,
        environment_factory=functools.partial(Exiting, tmp_path),
        evaluation_environment_factory=small.Ramp,
        evaluation_period=0,
    )
    with pytest.raises(
        distributed.ProgramFailed,
        match=r"Node actor/0 failed 2 times.*its process died.* has made no environment steps",
    ):
        distributed.run_distributed_experiment(config, num_actors=1)
    exits = [float(line) for line in (tmp_path / "exits").read_text().split()]
    assert len(exits) == 2
    # What is left of 20 seconds, as starts of processes take long on a machine with other work.
    assert time.time() - exits[-1] < _END_SECONDS


class Stopping:
    """A callback that stops a node's process, as a debugger does, and asks the run to end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.at = math.inf

    def __call__(self, progress: experiments.Progress) -> None:
        if self.at < math.inf or progress.env_steps < 100:
            return
        if about := killing.ask(self._name):
            os.kill(about["pid"], signal.SIGSTOP)
            self.at = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)


def test_a_stopped_learner_is_not_waited_for_and_the_run_says_what_it_lacks(
    tmp_path: pathlib.Path, mark: str
) -> None:
    stopping = Stopping("learner")
    config = make(tmp_path, num_env_steps=10**7, checkpoint_period=0, evaluation_period=0)
    with pytest.raises(
        distributed.ProgramFailed,
        match=r"learner has not given a sign of life for 10 s\. The run has made .*\(none yet\) lacks",
    ):
        distributed.run_distributed_experiment(config, stopping, num_actors=1)
    assert time.monotonic() - stopping.at < _END_SECONDS
    assert not killing.processes(mark)  # the stopped one too


class FullDisk:
    """A callback after which no checkpoint, log or count can be written, and which asks the run to end."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self.at = math.inf

    def __call__(self, progress: experiments.Progress) -> None:
        if self.at < math.inf or progress.env_steps < 100:
            return
        (journal,) = self._directory.glob(".counts-*.json")
        with contextlib.suppress(FileExistsError):  # it is being written: at the next look
            pathlib.Path(f"{journal}.new").symlink_to("/dev/full")
            (self._directory / "full").touch()
            self.at = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)


def fail_if(file: pathlib.Path) -> None:
    if file.exists():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("period", [0, 50])
def test_a_disk_that_is_full_is_not_waited_for_and_the_run_says_what_it_lacks(
    tmp_path: pathlib.Path, mark: str, period: int
) -> None:
    """Also where the learner is just trying to save."""
    disk = FullDisk(tmp_path)
    config = make(
        tmp_path,
        builder=small.saving_builder(functools.partial(fail_if, tmp_path / "full")),
        num_env_steps=10**7,
        checkpoint_period=period,
        evaluation_period=0,
    )
    with pytest.raises(
        distributed.ProgramFailed, match=r"(No space|cannot be written).*the newest checkpoint \(.*\) lacks"
    ):
        distributed.run_distributed_experiment(config, disk, num_actors=1)
    assert time.monotonic() - disk.at < _END_SECONDS


def start(directory: pathlib.Path, mark: str, repository: pathlib.Path, log: Any, *flags: str) -> Any:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.distributed.driver", str(directory), *flags],
        env={**os.environ, killing.MARK: mark},
        cwd=repository,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def driver(tmp_path: pathlib.Path, repository: pathlib.Path) -> Iterator[Any]:
    """Starts a driver in a process of its own: gives the process and what is in its log."""
    mark = uuid.uuid4().hex
    started = []

    def start_(*flags: str) -> tuple[Any, pathlib.Path]:
        with (tmp_path / "log").open("w") as log:
            started.append(start(tmp_path / "run", mark, repository, log, *flags))
        return started[-1], tmp_path / "log"

    start_.mark = mark  # type: ignore[attr-defined]
    yield start_
    for process in started:
        process.kill()
        process.communicate()
    for pid in killing.processes(mark):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def test_a_lost_head_ends_the_run_which_is_saved(tmp_path: pathlib.Path, driver: Any) -> None:
    # In a process of its own: Ray ends one whose head is gone, within a minute.
    process, log = driver()
    directory = tmp_path / "run"
    killing.wait_until(lambda: checkpointing.latest(directory / "checkpoints"), 240.0)
    (head,) = [pid for pid, line in killing.processes(driver.mark).items() if "gcs_server" in line.split()[0]]
    os.kill(head, signal.SIGKILL)
    process.communicate(timeout=120)
    last = log.read_text().splitlines()[-1]
    assert process.returncode == 1
    assert re.search(r"ProgramFailed: The head of Ray at .* has not answered .* has all of them\.$", last)
    made = int(re.search(r"made ([\d,]+) environment steps", last)[1].replace(",", ""))  # type: ignore[index]
    assert checkpointing.env_steps(checkpointing.find(directory)) == made


def test_a_step_and_a_save_that_take_long_after_one_signal_lose_nothing(
    tmp_path: pathlib.Path, driver: Any
) -> None:
    process, log = driver("--slow")
    directory = tmp_path / "run"
    killing.wait_until((directory / "slow").exists, 240.0)  # in a step that takes long
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, log.read_text()
    assert time.monotonic() - began > 6.0
    begins, word, env_steps, signal_name = output.split()
    assert (begins, word, signal_name) == ("begins", "ended", "SIGTERM")
    assert checkpointing.env_steps(checkpointing.find(directory)) == int(env_steps) > 0


@pytest.mark.parametrize("seconds", [2.0, 6.0])
def test_a_signal_while_the_processes_start_ends_the_run_soon(driver: Any, seconds: float) -> None:
    process, log = driver()
    killing.wait_until(lambda: "the program:" in log.read_text(), 240.0)
    time.sleep(seconds)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert time.monotonic() - began < _END_SECONDS
    assert "SIGINT: stopping" in log.read_text() and "Last checkpoint: none yet." in log.read_text()
    assert (process.returncode, output.split()[2:]) == (0, ["0", "SIGINT"]), log.read_text()


@pytest.mark.parametrize("seconds", [0.5, 2.0])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_ray_starts_ends_the_run_with_a_word(
    driver: Any, number: signal.Signals, seconds: float
) -> None:
    process, log = driver()
    assert process.stdout.readline() == "begins\n"
    time.sleep(seconds)
    began = time.monotonic()
    process.send_signal(number)
    process.communicate(timeout=120)
    assert time.monotonic() - began < _END_SECONDS
    assert process.returncode in (1, -signal.SIGINT)  # of an unhandled KeyboardInterrupt
    assert log.read_text().splitlines()[-1] == "KeyboardInterrupt: stopped; last checkpoint: none yet"
