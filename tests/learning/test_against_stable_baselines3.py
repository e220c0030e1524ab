"""The comparison itself is right; what it finds takes an hour and a half (`make compare-sb3`)."""

import dataclasses
import inspect
import types

import numpy as np
import pytest

from . import against_stable_baselines3 as against

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")


@pytest.mark.parametrize("agent", [*against.PAIRS])
def test_both_programs_are_given_equal_settings(agent):
    import stable_baselines3

    pair = against.PAIRS[agent]
    ours = dataclasses.asdict(pair.builder.config)
    defaults = inspect.signature(getattr(stable_baselines3, agent).__init__).parameters
    theirs = {name: parameter.default for name, parameter in defaults.items()} | dict(pair.theirs)
    same = {
        "gamma": "discount",
        "learning_rate": "learning_rate",
        "tau": "target_rate",
        "learning_starts": "min_replay_size",
        "buffer_size": "max_replay_size",
        "batch_size": "minibatch_size" if agent == "PPO" else "batch_size",
        "policy_delay": "policy_period",
        "target_policy_noise": "target_stddev",
        "target_noise_clip": "target_noise_clip",
        "exploration_final_eps": "final_epsilon",
        "exploration_initial_eps": "initial_epsilon",
        "max_grad_norm": "max_grad_norm",
        "gae_lambda": "gae_lambda",
        "n_epochs": "num_epochs",
        "clip_range": "clip_ratio",
        "ent_coef": "entropy_coef",
        "vf_coef": "value_coef",
    }
    compared = {
        their_name: (theirs[their_name], ours[our_name])
        for their_name, our_name in same.items()
        if their_name in theirs and our_name in ours
    }
    if agent == "DQN":
        # Theirs counts environment steps, and begins its updates of the target behind DQN's first steps.
        compared.pop("tau", None)
        assert theirs["target_update_interval"] == 2 * ours["target_update_period"]
        assert theirs["exploration_fraction"] * pair.num_env_steps == ours["epsilon_steps"]
        assert theirs["train_freq"] == ours["batch_size"] / ours["samples_per_insert"]
    assert len(compared) >= 6
    assert all(a == b for a, b in compared.values()), compared


def test_both_train_and_their_rows_are_written_as_they_come(tmp_path):
    arguments = ["--agents", "DQN", "--seeds", "1", "--num-env-steps", "1010", "--episodes", "2"]
    rows = against.main([*arguments, "--directory", str(tmp_path)])
    assert [(row.agent, row.program, row.seed) for row in rows] == [("DQN", "theirs", 1), ("DQN", "ours", 1)]
    assert all(8.0 <= row.avg_return <= 500.0 and row.cpu_seconds > 0.0 for row in rows)
    assert len((tmp_path / "rows.csv").read_text(encoding="utf-8").splitlines()) == 3


@pytest.mark.parametrize(("agent", "num_seeds"), [("TD3", 3), ("DQN", 30)])
def test_both_train_with_each_seed_from_0(agent, num_seeds, tmp_path, monkeypatch):
    for train in ("train_ours", "train_theirs"):
        monkeypatch.setattr(against, train, lambda *_: None)
    monkeypatch.setattr(against, "mean_return", lambda *_: 1.0)
    monkeypatch.setattr(against.time, "process_time", iter(range(10**6)).__next__)
    monkeypatch.setattr(against.time, "perf_counter", iter(range(10**6)).__next__)
    rows = against.main(["--agents", agent, "--directory", str(tmp_path)])
    expected = sorted((program, seed) for program in ("ours", "theirs") for seed in range(num_seeds))
    assert sorted((row.program, row.seed) for row in rows) == expected


def test_a_policy_of_ours_plays_the_task_with_the_whole_range_of_its_actions(tmp_path, monkeypatch):
    class Policy:
        def __call__(self, observation):
            return types.SimpleNamespace(action=np.array([-0.5], np.float32))

    monkeypatch.setattr(against.experiments, "run_experiment", lambda config: None)
    monkeypatch.setattr(against.experiments, "load_policy", lambda folder: Policy())
    policy = against.train_ours(against.PAIRS["SAC"], 0, 1, tmp_path)
    np.testing.assert_allclose(policy(np.zeros(3)), [-1.0])  # the task's are within [-2, 2]
    discrete = against.train_ours(against.PAIRS["DQN"], 0, 1, tmp_path)
    np.testing.assert_array_equal(discrete(np.zeros(4)), [-0.5])  # as it is


def test_what_one_agent_is_given_is_not_changed_by_another_that_has_the_same_settings():
    settings = against.PAIRS["TD3"].theirs["policy_kwargs"]  # as SAC's, into which theirs writes
    assert settings is against.PAIRS["SAC"].theirs["policy_kwargs"]
    before = dict(settings)
    for agent in ("SAC", "TD3"):
        against.train_theirs(agent, against.PAIRS[agent], seed=0, num_env_steps=2)
    assert settings == before


def test_the_table_says_below_only_beyond_a_standard_error():
    def rows(agent, ours, theirs):
        return [
            against.Row(agent, program, seed, value, seconds, 2.0 * seconds)
            for program, values, seconds in (("ours", ours, 2.0), ("theirs", theirs, 3.0))
            for seed, value in enumerate(values)
        ]

    lines = against.table(
        rows("A", [1.0, 2.0, 3.0], [2.0, 2.5, 3.0]) + rows("B", [1.0, 1.1], [2.0, 2.1])
    ).splitlines()
    assert lines[1].split()[:7] == ["A", "2.0", "+-", "0.6", "2.5", "+-", "0.3"]
    assert "not below theirs" in lines[1] and lines[1].split()[-2:] == ["1.50", "1.50"]
    assert "not below" not in lines[2] and "below theirs" in lines[2]
