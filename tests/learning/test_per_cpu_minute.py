"""Returns by CPU time: which evaluation counts, and what is not known."""

import dataclasses
import pathlib
import re

import pytest

from minerva_acme import experiments, results
from minerva_acme.agents import sac
from minerva_acme.environments import make_training_environment
from tests.learning import per_cpu_minute


def experiment(evaluations, task="a/b", seed=0):
    """An experiment with a run: pairs of CPU seconds and returns."""
    rows = []
    for number, (seconds, value) in enumerate(evaluations):
        rows.append(results.Row("mine", task, seed, "avg_return", 10 * number, value))
        if seconds is not None:
            rows.append(results.Row("mine", task, seed, "cpu_seconds", 10 * number, seconds))
    return results.Experiment(exp_name="mine", rows=tuple(rows))


RUN = [(6.0, 1.0), (59.0, 2.0), (61.0, 3.0), (300.0, 4.0)]


def test_the_last_evaluation_within_the_time_counts():
    assert per_cpu_minute.returns(experiment(RUN), [1.0, 2.0, 5.0]) == {"a/b": [[2.0, 3.0, 4.0]]}


def test_before_the_first_evaluation_and_after_the_end_of_a_run_nothing_is_known():
    assert per_cpu_minute.returns(experiment(RUN), [0.05, 5.1]) == {"a/b": [[None, None]]}


def test_runs_are_sorted_by_seed_and_separate_by_task():
    parts = [experiment([(6.0, 9.0), (70.0, 8.0)], seed=1), experiment(RUN), experiment(RUN[1:], task="c/d")]
    rows = tuple(row for part in parts for row in part.rows)
    both = dataclasses.replace(parts[0], rows=rows)
    assert per_cpu_minute.returns(both, [1.0]) == {"a/b": [[2.0], [9.0]], "c/d": [[2.0]]}


def test_evaluations_without_cpu_times_are_refused():
    with pytest.raises(
        ValueError, match="mine on a/b with seed 0 must have a CPU time .* got none at 1 of 2"
    ):
        per_cpu_minute.returns(experiment([(None, 1.0), (9.0, 2.0)]), [1.0])


def test_the_table_has_means_and_seeds():
    found = {("b", "mpo"): [[1.0, None], [3.0, None]], ("a", "sac"): [[5.0, 6.0], [None, 8.0]]}
    assert per_cpu_minute.table(found, [5.0, 10.0]).splitlines()[2:] == [
        "| a | sac | 5 (5, -) | 7 (6, 8) |",
        "| b | mpo | 2 (1, 3) | - |",
    ]


def test_runs_are_grouped_by_task_and_experiment(tmp_path, capsys):
    for seed in (1, 0):
        experiments.run_experiment(
            experiments.ExperimentConfig(
                builder=sac.SACBuilder(sac.SACConfig(min_replay_size=50, batch_size=8)),
                environment_factory=make_pendulum,
                directory=tmp_path / str(seed),
                num_env_steps=60,
                evaluation_episodes=1,
                evaluation_period=30,
                seed=seed,
                replay="memory",
                tensorboard=False,
            )
        )
    printed = per_cpu_minute.main(
        [str(tmp_path / "0"), str(tmp_path / "1"), "--minutes", "0.0001", "600", "--env", "Pendulum-v1"]
    )
    assert len(printed.splitlines()) == 3
    assert printed.splitlines()[2].startswith("| Pendulum-v1 | sac")
    assert printed in capsys.readouterr().out


def make_pendulum(seed):
    return make_training_environment("Pendulum-v1", seed=seed)


def test_the_table_of_the_page_is_what_its_command_prints(capsys):
    page = (pathlib.Path(__file__).parents[2] / "docs/frontier.md").read_text()
    page = page.replace("\\\n", "").replace("$D/", "dm_control/")
    (words,) = re.findall(r"^python -m tests.learning.per_cpu_minute (.*)$", page, re.MULTILINE)
    printed = per_cpu_minute.main(words.split())
    assert printed.count("\n") == 7 and f"\n{printed}\n" in page
