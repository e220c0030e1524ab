"""A metric of the user's own chooses the best and stops a run in several processes too; here in threads."""

import json
import math
import pathlib

import pytest

from minerva_acme import distributed, experiments, observers
from minerva_acme.runs import checkpointing
from tests.distributed import small

pytestmark = [pytest.mark.reverb, pytest.mark.timeout(300)]

NORM = "action_norm/mean"


def play(directory: pathlib.Path, **changes: object) -> experiments.ExperimentResult:
    settings = {"evaluation_observers": [observers.ActionNorm()], "metric": NORM, "num_env_steps": 160}
    settings |= {"evaluation_period": 40, "checkpoint_period": 80}
    config = small.experiment(directory, small.sac_builder(), **(settings | changes))
    return distributed.run_distributed_experiment(config, num_actors=1, engine="inline")


def test_the_best_and_the_stop_go_by_the_metric(tmp_path: pathlib.Path) -> None:
    result = play(tmp_path)
    found = {float(row["actor_steps"]): float(row[NORM]) for row in small.rows(tmp_path, "evaluator")}
    scores = [score for steps, score in found.items() if steps > 0]
    assert result.best is not None and math.isclose(result.best[1].score(NORM), max(scores))
    best = json.loads((checkpointing.find(tmp_path, "best") / "manifest.json").read_text())
    assert math.isclose(best["evaluation"], max(scores))
    again = play(tmp_path, num_env_steps=400, stop_at=min(scores))
    assert str(again.stopped_by).startswith(f"the evaluation {NORM} of ")
    with pytest.raises(ValueError, match=f"`metric` must be '{NORM}', by which the run has chosen"):
        play(tmp_path, num_env_steps=600, metric="episode_return")


def test_an_unknown_metric_ends_the_run_with_those_that_are_known(tmp_path: pathlib.Path) -> None:
    with pytest.raises(
        distributed.ProgramFailed, match=f"got 'unknown'. This one had episode_return, .*{NORM}"
    ):
        play(tmp_path, metric="unknown")
