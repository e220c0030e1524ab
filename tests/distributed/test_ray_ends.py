"""How a run of real processes ends that cannot go well."""

import contextlib
import ctypes
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
        match="Node actor/0 failed 6 times, the last time: its process died before it had done any work",
    ):
        distributed.run_distributed_experiment(config, num_actors=1)


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
    word, env_steps, signal_name = output.split()
    assert (word, signal_name) == ("ended", "SIGTERM")
    assert checkpointing.env_steps(checkpointing.find(directory)) == int(env_steps) > 0
