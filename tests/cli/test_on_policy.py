"""PPO and V-MPO from the command line."""

import json

import pytest

from minerva_acme.cli import main


@pytest.mark.parametrize(
    ("agent", "flags", "field"),
    [
        ("ppo", ["--minibatch-size", "16", "--num-epochs", "1"], "num_epochs"),
        ("vmpo", ["--m-steps", "1"], "m_steps"),
    ],
)
def test_on_policy_agents_are_trained_and_evaluated(tmp_path, capsys, agent, flags, field):
    command = f"train {agent} --env CartPole-v1 --num-env-steps 64 --rollout-steps 32 --num-environments 2"
    sizes = "--policy-layer-sizes 8 --value-layer-sizes 8 --evaluation-episodes 1 --log csv --replay memory"
    directory = tmp_path / "run"
    assert main([*command.split(), *sizes.split(), *flags, "--directory", str(directory)]) == 0
    assert "after 64 environment" in " ".join(capsys.readouterr().out.split())
    hyperparameters = json.loads((directory / "run.json").read_text())["hyperparameters"]
    assert (hyperparameters[field], hyperparameters["num_environments"]) == (1, 2)
    assert main(["eval", str(directory), "--episodes", "1"]) == 0
    assert f"{agent} on CartPole-v1, 64 environment steps: return " in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("ppo --minibatch-size 64 --rollout-steps 32", "`minibatch_size` must be <= `rollout_steps` (32)"),
        ("ppo --num-environments 3 --rollout-steps 64", "`rollout_steps` must be a multiple of"),
        ("vmpo --top-k-fraction 0", "`top_k_fraction` must be in (0, 1], got 0.0."),
        ("vmpo --policy-layer-sizes 0", "`policy_layer_sizes` must be one or more sizes >= 1, got (0,)."),
    ],
)
def test_their_settings_are_checked(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *arguments.split(), "--env", "CartPole-v1", "--num-env-steps", "64"]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
