"""MPO on cartpole: `make learn` runs this, and `minerva eval` shows what it left in runs/learn."""

import csv

import pytest

TASK = "dm_control/cartpole/swingup"

pytestmark = pytest.mark.learning


def evaluation_at(directory, env_steps):
    """The return of the evaluation that training made after so many steps."""
    with open(directory / "evaluator.csv", newline="", encoding="utf-8") as file:
        rows = {int(float(row["actor_steps"])): float(row["episode_return"]) for row in csv.DictReader(file)}
    return rows[env_steps]


def train_mpo(train, critic_target, seed, num_env_steps):
    flags = "--preset", "control", "--critic-target", critic_target
    return train(f"cartpole-swingup-{critic_target}", "mpo", TASK, num_env_steps, seed, *flags)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_mpo_with_retrace_swings_up_the_pole_in_50k_steps(train, evaluate, seed):
    assert evaluate(train_mpo(train, "retrace", seed, 50_000)) >= 800.0


def test_retrace_learns_more_than_one_step_targets_from_the_same_steps(train):
    num_env_steps = {"retrace": 50_000, "n_step": 40_000, "one_step": 40_000}
    folders = {target: train_mpo(train, target, 0, steps) for target, steps in num_env_steps.items()}
    by_target = {target: evaluation_at(folder, 40_000) for target, folder in folders.items()}
    print(f"after 40,000 steps, seed 0: {by_target}", flush=True)
    assert by_target["retrace"] > by_target["one_step"]


def test_mpo_with_discrete_actions_keeps_the_pole_up(train):
    """Seed 0 was at the limit of 500 after 15,000, 25,000 and 27,500 steps."""
    settings = {
        "preset": "control",
        "batch-size": 64,
        "samples-per-insert": 32,
        "policy-layer-sizes": (64, 64),
        "critic-layer-sizes": (64, 64),
        "policy-learning-rate": 1e-3,
        "critic-learning-rate": 1e-3,
        "epsilon-mean": 0.05,
        "target-policy-update-period": 25,
        "target-critic-update-period": 25,
        "evaluation-period": 2500,
    }
    flags: list[str] = []
    for name, value in settings.items():
        flags += [f"--{name}", *map(str, value if isinstance(value, tuple) else [value])]
    directory = train("CartPole-v1-mpo", "mpo", "CartPole-v1", 30_000, 0, *flags)
    with open(directory / "evaluator.csv", newline="", encoding="utf-8") as file:
        best = max(float(row["episode_return"]) for row in csv.DictReader(file))
    assert best >= 450.0
