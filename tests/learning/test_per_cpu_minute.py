"""Returns by CPU time: which evaluation counts, and what is not known."""

import pytest

from minerva_acme import experiments
from minerva_acme.agents import sac
from minerva_acme.environments import make_training_environment
from tests.learning import per_cpu_minute


@pytest.fixture
def evaluations(tmp_path):
    (tmp_path / "evaluator.csv").write_text(
        "cpu_seconds,episode_return\n6.0,1.0\n59.0,2.0\n61.0,3.0\n300.0,4.0\n"
    )
    return tmp_path


def test_the_last_evaluation_within_the_time_counts(evaluations):
    assert per_cpu_minute.returns(evaluations, [1.0, 2.0, 5.0]) == [2.0, 3.0, 4.0]


def test_before_the_first_evaluation_and_after_the_end_of_a_run_nothing_is_known(evaluations):
    assert per_cpu_minute.returns(evaluations, [0.05, 5.1]) == [None, None]


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
    printed = per_cpu_minute.main([str(tmp_path / "0"), str(tmp_path / "1"), "--minutes", "0.0001", "600"])
    assert len(printed.splitlines()) == 3
    assert printed.splitlines()[2].startswith("| Pendulum-v1 | sac")
    assert printed in capsys.readouterr().out


def make_pendulum(seed):
    return make_training_environment("Pendulum-v1", seed=seed)
