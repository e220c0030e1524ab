"""Real processes, and what becomes of the run when they are killed."""

import contextlib
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minerva_acme import builders, distributed
from minerva_acme.runs import checkpointing
from tests.distributed import killing, small

pytestmark = [
    pytest.mark.ray,
    pytest.mark.reverb,
    pytest.mark.timeout(1200),
    # Of a start of Ray that a busy machine was too slow for, and that was tried again.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """Is in the environment of all processes that a test starts."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(killing.MARK, mark)
    return mark


@pytest.mark.promise("With Ray and an off-policy agent")
def test_any_process_may_be_killed_and_the_run_goes_on(tmp_path: pathlib.Path, mark: str) -> None:
    killer = killing.Killer(["actor/0", "learner", "replay", "evaluator", "counter"], tmp_path)
    config = small.experiment(tmp_path, small.sac_builder(), num_env_steps=10**6)
    result = distributed.run_distributed_experiment(config, killer, num_actors=2)
    assert result.stopped_by == "all were killed"
    assert killer.killed == ["actor/0", "learner", "replay", "evaluator", "counter"]
    assert killer.progress[-1].metrics["restarts"] == 5

    # Environment steps never fell, nor learner steps but where the learner began again from its checkpoint.
    env_steps = [progress.env_steps for progress in killer.progress]
    learner_steps = [progress.learner_steps for progress in killer.progress]
    assert env_steps == sorted(env_steps)
    assert sum(b < a for a, b in itertools.pairwise(learner_steps)) <= 1
    assert max(learner_steps) > 100
    state = checkpointing.load_state(checkpointing.find(tmp_path))
    assert state["counter"]["actor_steps"] == result.env_steps
    assert state["counter"]["learner_steps"] == result.learner_steps == state["learner"]["num_steps"]
    assert result.after is not None  # the evaluator was back

    loaded = killer.loaded
    assert loaded.keys() == {"counter", "replay", "learner", "actor/0", "actor/1", "evaluator"}
    assert not any(process["tensorflow"] or process["cuda"] for process in loaded.values())
    assert not loaded["replay"]["torch"]
    assert {loaded[name]["torch_threads"] for name in ("actor/0", "actor/1", "evaluator")} == {1}
    nodes = killer.progress[-1].nodes
    assert "weights" in nodes["actor/0"] and "MB" in nodes["replay"]
    killing.wait_until(lambda: not killing.processes(mark), 15.0)


@pytest.mark.parametrize(
    ("builder", "steps_taken"),
    [
        (small.ppo_builder(), 32),  # a rollout of each actor
        (small.ppo_builder(asynchronous=True), 16),  # one of any
        (small.impala_builder(memory="lstm", memory_size=4), 16),
    ],
    ids=["rounds of ppo", "ppo in a queue", "impala with memory"],
)
def test_rollouts_are_learned_from_without_what_a_killed_process_had(
    tmp_path: pathlib.Path, mark: str, builder: builders.AgentBuilder[Any], steps_taken: int
) -> None:
    killer = killing.Killer(["actor/0", "replay", "learner"], tmp_path)
    config = small.experiment(tmp_path, builder, num_env_steps=10**6)
    result = distributed.run_distributed_experiment(
        config, killer, num_actors=2, replay_after_failure="empty"
    )
    assert result.stopped_by == "all were killed" and killer.killed == ["actor/0", "replay", "learner"]
    # What was lost or dropped is made again. What the killed actor made since its last report may be learned
    # from but is not counted, and is at most its lease: four times what it made between two reports.
    counted = [progress.env_steps for progress in killer.progress]
    uncounted = 4 * max(b - a for a, b in itertools.pairwise(counted))
    assert 30 < result.learner_steps <= (result.env_steps + uncounted) / steps_taken
    killing.wait_until(lambda: not killing.processes(mark), 15.0)


@pytest.fixture
def start(repository: pathlib.Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a driver, whose processes all end with the test."""
    started = []

    def start(directory: pathlib.Path, mark: str) -> subprocess.Popen[str]:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.distributed.driver", str(directory)],
            env={**os.environ, killing.MARK: mark},
            cwd=repository,
            stdout=subprocess.PIPE,
            stderr=(directory.parent / f"{mark}.log").open("w"),
            text=True,
            start_new_session=True,
        )
        started.append((driver, mark))
        return driver

    yield start
    for driver, mark_of_run in started:
        driver.kill()
        driver.communicate()
        for pid in killing.processes(mark_of_run):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.promise("A killed driver takes its nodes along")
def test_a_killed_driver_takes_its_nodes_along_and_ctrl_c_saves(
    tmp_path: pathlib.Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    directory = tmp_path / "run"
    first_mark, second_mark = uuid.uuid4().hex, uuid.uuid4().hex
    first = start(directory, first_mark)
    killing.wait_until(lambda: checkpointing.latest(directory / "checkpoints"), 240.0)
    first.kill()
    first.wait()
    # Its nodes are Ray's workers. Two agents of Ray's own, which hold nothing of the run, take a minute.
    killing.wait_until(
        lambda: not any("RayNode" in line for line in killing.processes(first_mark).values()), 30.0
    )
    newest = checkpointing.env_steps(checkpointing.find(directory))

    second = start(directory, second_mark)
    killing.wait_until(lambda: checkpointing.env_steps(checkpointing.find(directory)) > newest + 300, 240.0)
    os.killpg(second.pid, signal.SIGINT)
    began = time.monotonic()
    output, _ = second.communicate(timeout=60)
    assert time.monotonic() - began < 15.0
    assert second.returncode == 0
    word, env_steps, signal_name = output.removeprefix("begins\n").split()
    assert (word, signal_name) == ("ended", "SIGINT")
    assert checkpointing.env_steps(checkpointing.find(directory)) == int(env_steps)
    killing.wait_until(lambda: not killing.processes(second_mark), 15.0)
    killing.wait_until(lambda: not killing.processes(first_mark), 90.0)
