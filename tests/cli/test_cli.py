import json

import pytest

from minerva_acme.cli import main

TINY = [
    "--batch-size",
    "8",
    "--min-replay-size",
    "20",
    "--samples-per-insert",
    "2",
    "--policy-layer-sizes",
    "8",
    "--critic-layer-sizes",
    "8",
    "8",
    "--num-samples",
    "4",
    "--retrace-mc-actions",
    "2",
    "--evaluation-episodes",
    "1",
    "--log",
    "csv",
    "--replay",
    "memory",
]


def train(directory, *arguments):
    command = "train mpo --env Pendulum-v1 --num-env-steps 60 --directory"
    return main([*command.split(), str(directory), *TINY, *arguments])


def test_training_shows_what_was_learned_and_where_it_lies(tmp_path, capsys):
    assert train(tmp_path / "run") == 0
    out = capsys.readouterr().out
    for words in (
        "random actions",
        "before training",
        "after 60 environment",
        f"minerva eval {tmp_path / 'run'}",
    ):
        assert words in " ".join(out.split()), out
    description = json.loads((tmp_path / "run" / "run.json").read_text())
    assert description["environment"] == "Pendulum-v1"
    assert description["hyperparameters"]["critic_layer_sizes"] == [8, 8]


def test_a_trained_run_can_be_evaluated(tmp_path, capsys):
    train(tmp_path / "run")
    capsys.readouterr()
    assert main(["eval", str(tmp_path / "run"), "--episodes", "2"]) == 0
    out = capsys.readouterr().out
    assert out.count("episode ") == 2
    assert "mpo on Pendulum-v1, 60 environment steps: return -" in out


def test_the_same_command_resumes_and_other_settings_are_refused(tmp_path, capsys):
    train(tmp_path / "run")
    assert train(tmp_path / "run") == 0
    capsys.readouterr()
    assert train(tmp_path / "run", "--discount", "0.5") == 2
    assert "holds another run: discount is 0.99 there, 0.5 here" in capsys.readouterr().err


def test_a_preset_gives_the_defaults_of_the_flags(tmp_path):
    assert train(tmp_path / "run", "--preset", "minerva") == 0
    hyperparameters = json.loads((tmp_path / "run" / "run.json").read_text())["hyperparameters"]
    assert hyperparameters["discount"] == 0.98  # The preset's,
    assert hyperparameters["batch_size"] == 8  # unless a flag says otherwise.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "mpoo"], "There is no agent 'mpoo'; there are mpo, vmpo, ppo. Did you mean 'mpo'?"),
        (
            ["train", "mpo", "--preset", "controll", "--env", "Pendulum-v1", "--num-env-steps", "1"],
            "There is no preset 'controll'; there are default, control, minerva. Did you mean 'control'?",
        ),
        (["train", "mpo", "--env", "Pendulum-v11", "--num-env-steps", "1"], "Pendulum-v1"),
        (
            ["train", "mpo", "--env", "dm_control/cartpole/swing_up", "--num-env-steps", "1"],
            "dm_control/cartpole/swingup",
        ),
        (["train", "mpo", "--env", "CartPole-v1", "--num-env-steps", "1"], "MPO needs actions"),
        (
            ["train", "mpo", "--env", "Pendulum-v1", "--num-env-steps", "0"],
            "`num_env_steps` must be >= 1, got 0.",
        ),
        (
            ["train", "mpo", "--env", "Pendulum-v1", "--num-env-steps", "1", "--discount", "2"],
            "`discount` must be in [0, 1], got 2.0.",
        ),
        (["eval", "nowhere"], "There is no run in nowhere: run.json is missing."),
    ],
)
def test_a_mistake_is_told_with_the_way_out(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    try:
        status = main(arguments)
    except SystemExit as exit_:
        status = exit_.code
    assert status == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert not list(tmp_path.iterdir())


def test_help_lists_the_agents_flags_with_their_words(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["train", "mpo", "--help"])
    assert exit_.value.code == 0
    out = capsys.readouterr().out
    for words in ("--retrace-lambda", "--num-env-steps", "Lambda of Retrace"):
        assert words in out
