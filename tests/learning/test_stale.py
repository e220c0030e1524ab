"""Older weights do no harm if they are corrected for. `make learn` runs the long part."""

import csv
import statistics

import pytest

from . import stale


def test_a_lagging_learner_gives_older_weights(tmp_path):
    brief = ["--num-env-steps", "480", "--num-evaluations", "1", "--evaluation-episodes", "1"]
    agents = ["corrected_0", "corrected_2"]
    arguments = [*brief, "--tasks", "lagging", "--seeds", "3", "--directory", str(tmp_path)]
    found = stale.main([*arguments, "--agents", *agents])
    assert {row.exp_name for row in found} == {*agents}
    weight = {}
    for agent in agents:
        with open(tmp_path / f"lagging-{agent}-3" / "learner.csv", newline="", encoding="utf-8") as file:
            weight[agent] = [float(row["stale/weight"]) for row in csv.DictReader(file)][-1]
    assert weight["corrected_0"] == pytest.approx(1.0, abs=1e-5)
    assert weight["corrected_2"] < 0.999


@pytest.mark.learning
def test_older_weights_do_no_harm_if_they_are_corrected_for(tmp_path):
    """CartPole-v1, 16,000 steps with weights 8 learner steps old: seed 0 is at 500 with and at 9 without."""
    arguments = ["--tasks", "lagging", "--num-evaluations", "8", "--evaluation-episodes", "3"]
    found = stale.main([*arguments, "--seeds", "0", "1", "--directory", str(tmp_path)])
    final = {}
    for row in found:
        if row.metric == "final_return":
            final.setdefault(row.exp_name, []).append(row.value)
    mean = {name: statistics.fmean(values) for name, values in final.items()}
    assert mean["corrected_8"] > mean["uncorrected_8"] + 200.0
    assert mean["corrected_8"] >= 0.8 * mean["corrected_0"]
