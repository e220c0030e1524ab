"""Several learners in processes of their own, of which each may be killed."""

import itertools
import logging
import pathlib
import signal
import uuid

import pytest

from minerva_acme import distributed
from minerva_acme.runs import checkpointing
from tests.distributed import killing, small

pytestmark = [
    pytest.mark.ray,
    pytest.mark.reverb,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]


@pytest.mark.parametrize("agent", ["sac", "ppo"])
def test_if_a_learner_is_killed_all_begin_again_from_the_newest_checkpoint(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    agent: str,
) -> None:
    mark = uuid.uuid4().hex
    monkeypatch.setenv(killing.MARK, mark)
    caplog.set_level(logging.INFO, "minerva_acme.distributed")
    names = ["learner/1", "learner", "learner/1"]
    killer = killing.Killer([*names], tmp_path, restarts_of_each=2)
    builder = {"sac": small.sac_builder, "ppo": small.ppo_builder}[agent]()
    config = small.experiment(tmp_path, builder, num_env_steps=10**6)
    result = distributed.run_distributed_experiment(config, killer, num_actors=2, num_learners=2)
    assert result.stopped_by == "all were killed" and killer.killed == names

    said = [record.getMessage() for record in caplog.records]
    assert sum("learner ended (Learner 1 of 0..1 is gone" in line for line in said) == 2, said
    assert sum("learner/1 ended (Learner 0 of 0..1 is gone" in line for line in said) == 1, said
    # Learner steps fall to those of a checkpoint, environment steps never do.
    env_steps = [progress.env_steps for progress in killer.progress]
    learner_steps = [progress.learner_steps for progress in killer.progress]
    assert env_steps == sorted(env_steps)
    assert sum(b < a for a, b in itertools.pairwise(learner_steps)) <= 3
    state = checkpointing.load_state(checkpointing.find(tmp_path))
    assert state["counter"]["actor_steps"] == result.env_steps
    assert state["counter"]["learner_steps"] == result.learner_steps == state["learner"]["num_steps"]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".learners")]
    killing.wait_until(lambda: not killing.processes(mark), 15.0)


@pytest.mark.parametrize("name", ["learner/1", "learner"])
def test_if_the_system_ends_a_learner_all_begin_again_and_no_step_is_lost(
    tmp_path: pathlib.Path, name: str
) -> None:
    killer = killing.Killer([name], tmp_path, signal.SIGTERM, restarts_of_each=2)
    config = small.experiment(tmp_path, small.sac_builder(), num_env_steps=10**6)
    result = distributed.run_distributed_experiment(config, killer, num_actors=2, num_learners=2)
    assert result.stopped_by == "all were killed" and killer.progress[-1].metrics["restarts"] == 2
    learner_steps = [progress.learner_steps for progress in killer.progress]
    assert learner_steps == sorted(learner_steps)
