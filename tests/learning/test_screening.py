"""Scores of runs, and their differences from the baseline, by hand."""

import pytest

from minerva_acme import results
from tests.learning import screening
from tests.learning.screening import Measured

TASK = "dm_control/cheetah/run"


def experiment_of(returns, seconds=90.0):
    rows = [
        results.Row("screening_x", TASK, 2, "avg_return", 5000 * i, value) for i, value in enumerate(returns)
    ]
    rows.append(results.Row("screening_x", TASK, 2, "cpu_seconds", 5000 * (len(returns) - 1), seconds))
    return results.Experiment(exp_name="screening_x", rows=tuple(reversed(rows)))


def test_a_score_is_the_mean_of_the_last_three_evaluations():
    found = screening.measure(experiment_of([900.0, 10.0, 100.0, 200.0, 600.0]))
    assert found == {(TASK, 2): Measured(pytest.approx(0.3), pytest.approx(1.5))}


def test_the_evaluation_before_training_does_not_count():
    with pytest.raises(ValueError, match="must have 3 evaluations, got 2"):
        screening.measure(experiment_of([900.0, 10.0, 100.0]))


def test_differences_are_paired_by_task_and_seed():
    def runs(*scores):
        places = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
        return {place: Measured(score, 2.0) for place, score in zip(places, scores, strict=False)}

    printed = screening.table(
        {
            "start": runs(0.1, 0.2, 0.5, 0.6),
            "worse": runs(0.0, 0.1, 0.3, 0.4),
            "better": runs(0.2, 0.4),
            "single": runs(0.11),
            "elsewhere": {("c", 0): Measured(1.0, 2.0)},
        }
    )
    assert [line.split(" | ") for line in printed.splitlines()[2:]] == [
        ["| `better`", "0.300", "", "", "+0.150 ± 0.050", "2", "2 |"],
        ["| `single`", "0.110", "", "", "+0.010", "1", "2 |"],
        ["| `start`", "0.150", "0.550", "", "", "4", "2 |"],
        ["| `worse`", "0.050", "0.350", "", "-0.150 ± 0.029", "4", "2 |"],
        ["| `elsewhere`", "", "", "1.000", "", "1", "2 |"],
    ]
