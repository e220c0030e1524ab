"""The comparison itself is right; what it finds takes an hour and a half (`make compare-sb3`)."""

import dataclasses
import inspect
import json
import pathlib
import sys
import types

import numpy as np
import pytest

from . import against_stable_baselines3 as against
from . import rival


@pytest.mark.parametrize("agent", [*against.PAIRS])
def test_both_programs_are_given_equal_settings(agent):
    stable_baselines3 = pytest.importorskip("stable_baselines3")
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


_RIVAL = """#!{python}
import json, sys
json.dump(sys.argv[1:], open({calls!r}, "a"))
print("Logging to nowhere")
print(json.dumps(dict(avg_return=9.0, seconds=2.0, cpu_seconds=1.01, dropped=["max_grad_norm"])))
"""


def make_rival(folder, calls):
    python = folder / "sb3" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(_RIVAL.format(python=sys.executable, calls=str(calls)), encoding="utf-8")
    python.chmod(0o700)


def test_programs_train_in_turn_and_their_rows_are_written_as_they_come(tmp_path, capsys):
    make_rival(tmp_path / "rivals", tmp_path / "calls.json")
    arguments = ["--agents", "DQN", "--seeds", "1", "--num-env-steps", "1010", "--episodes", "2"]
    arguments += ["--programs", "ours", "sb3", "--environments", str(tmp_path / "rivals")]
    rows = against.main([*arguments, "--directory", str(tmp_path / "out")])
    assert [(row.agent, row.program, row.seed) for row in rows] == [("DQN", "sb3", 1), ("DQN", "ours", 1)]
    assert rows[0][3:] == (1010, 9.0, 2.0, 1.01)
    assert 8.0 <= rows[1].avg_return <= 500.0 and rows[1].cpu_seconds > 0.0
    assert len((tmp_path / "out" / "rows.csv").read_text(encoding="utf-8").splitlines()) == 3
    script, library, agent, task, *flags = json.loads((tmp_path / "calls.json").read_text(encoding="utf-8"))
    assert (pathlib.Path(script).name, library, agent, task) == (
        "rival.py",
        "stable_baselines3",
        "DQN",
        "CartPole-v1",
    )
    given = dict(zip(flags[::2], flags[1::2], strict=True))
    assert json.loads(given.pop("--settings")) == against.PAIRS["DQN"].theirs
    assert given == {"--seed": "1", "--num-env-steps": "1010", "--num-environments": "1", "--episodes": "2"}
    assert "sb3 has no max_grad_norm" in capsys.readouterr().out


def test_ours_compiled_is_ours_with_that_acceleration(tmp_path, monkeypatch):
    seen = []

    def train(pair, seed, num_env_steps, folder, acceleration):
        seen.append((acceleration, folder.name))

    monkeypatch.setattr(against, "train_ours", train)
    monkeypatch.setattr(against.rival, "mean_return", lambda *_: 1.0)
    monkeypatch.setattr(against, "table", lambda rows: "")  # nothing took any time
    against.main(["--agents", "TD3", "--programs", "ours", "compiled", "--directory", str(tmp_path)])
    expected = [("auto", "ours"), ("compile", "compiled")]
    assert seen == [
        (acceleration, f"TD3_{program}_{seed}")
        for seed in range(3)  # each begins in its turn
        for acceleration, program in expected[:: -1 if seed % 2 else 1]
    ]


def test_a_policy_of_ours_plays_the_task_with_the_whole_range_of_its_actions(tmp_path, monkeypatch):
    class Policy:
        def __call__(self, observation):
            return types.SimpleNamespace(action=np.array([-0.5], np.float32))

    monkeypatch.setattr(against.experiments, "run_experiment", lambda config: None)
    monkeypatch.setattr(against.runs, "load_policy", lambda folder: Policy())
    policy = against.train_ours(against.PAIRS["SAC"], 0, 1, tmp_path)
    np.testing.assert_allclose(policy(np.zeros(3)), [-1.0])  # the task's are within [-2, 2]
    discrete = against.train_ours(against.PAIRS["DQN"], 0, 1, tmp_path)
    np.testing.assert_array_equal(discrete(np.zeros(4)), [-0.5])  # as it is


def test_a_rival_is_told_what_it_does_not_have(monkeypatch):
    common = types.SimpleNamespace(
        env_util=types.SimpleNamespace(make_vec_env=lambda task, n_envs, seed: None), noise=None
    )
    monkeypatch.setitem(sys.modules, "stable_baselines3", types.SimpleNamespace(common=common))
    monkeypatch.setitem(sys.modules, "stable_baselines3.common", common)
    library = types.SimpleNamespace(DQN=_Model)
    policy, dropped = rival.train(
        library, "DQN", "CartPole-v1", seed=3, num_env_steps=7, num_environments=1, settings={"a": 1, "b": 2}
    )
    assert dropped == ["b"]
    assert policy(np.zeros(4)) == ("MlpPolicy", 3, 1, 7)


class _Model:
    def __init__(self, policy, environment, seed, device, a):
        self._made = (policy, seed, a)

    def learn(self, num_steps):
        self._made += (num_steps,)

    def predict(self, observation, deterministic):
        assert deterministic
        return self._made, None


def test_the_table_says_below_only_beyond_a_standard_error():
    def rows(agent, ours, theirs):
        return [
            against.Row(agent, program, seed, 1000, value, seconds, 2.0 * seconds)
            for program, values, seconds in (("ours", ours, 2.0), ("sbx", theirs, 3.0))
            for seed, value in enumerate(values)
        ]

    lines = against.table(
        rows("A", [1.0, 2.0, 3.0], [2.0, 2.5, 3.0])
        + rows("B", [1.0, 1.1], [2.0, 2.1])
        + rows("C", [1.0], [2.0])
    ).splitlines()
    assert lines[1].split() == ["A", "ours", "2.0", "±", "0.6", "4.000", "1.00"]
    assert lines[2].split() == ["A", "sbx", "2.5", "±", "0.3", "not", "below", "6.000", "1.50"]
    assert "not below" not in lines[4] and "below" in lines[4]
    assert "below" not in lines[6]  # one seed says nothing
