"""PPO and V-MPO: what the agents' READMEs state. `make learn` runs this."""

import csv

import pytest

pytestmark = pytest.mark.learning


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("agent", "env", "num_env_steps", "least"),
    [
        ("ppo", "CartPole-v1", 100_000, 500.0),
        ("vmpo", "CartPole-v1", 100_000, 500.0),
        ("ppo", "InvertedPendulum-v5", 200_000, 900.0),
        ("vmpo", "InvertedPendulum-v5", 300_000, 900.0),
    ],
)
def test_the_pole_stays_up(train, evaluate, agent, env, num_env_steps, least, seed):
    directory = train(f"{env}-{agent}", agent, env, num_env_steps, seed)
    with open(directory / "evaluator.csv", newline="", encoding="utf-8") as file:
        best = max(float(row["episode_return"]) for row in csv.DictReader(file))
    assert best >= least
    # In the end, on other initial states: one seed of V-MPO ends CartPole-v1 at 488.
    assert evaluate(directory) >= 0.95 * least


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_ppo_swings_up_the_pole_in_a_million_steps(train, evaluate, seed):
    task, flags = "dm_control/cartpole/swingup", ("--preset", "control", "--evaluation-period", "100000")
    directory = train("cartpole-swingup-ppo", "ppo", task, 1_000_000, seed, *flags)
    assert evaluate(directory) >= 800.0
