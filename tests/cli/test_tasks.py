import json
import shlex

import pytest

from minerva_acme import results
from minerva_acme.agents import registry
from minerva_acme.cli import main, parsing, training
from minerva_acme.runs import tasks

LONG = """
[[task]]
agent = "mpo"
environment = "dm_control/manipulator/insert_ball"
preset = "minerva"
num_env_steps = 1_500_000
settings = { policy_layer_sizes = [256, 256, 256], critic_layer_sizes = [512, 512, 256], discount = 0.995 }

[[task]]
agent = "ppo"
environment = "Pendulum-v1"
preset = "default"
num_env_steps = 2_048
settings = { rollout_steps = 64, num_epochs = 1 }
"""
SCORES = {
    "dm_control/manipulator/insert_ball": (-12345.67, 0.04, 9.96, 8.5, 7.5, 12),
    "Pendulum-v1": (-1100.0,),
}


def parse(text=LONG):
    """Returns the entries with the scores of their seeds."""
    entries = tasks.parse(text, [])
    rows = [
        results.Row(task.exp_name, task.environment, seed, metric, task.num_env_steps, value)
        for task in entries
        for seed, score in enumerate(SCORES[task.environment])
        for metric, value in (("final_return", score), ("final_return_std", 1.0))
    ]
    return tasks.parse(text, rows)


@pytest.fixture
def long_entries(monkeypatch):
    """Entries with all that makes a row long, instead of the file's."""
    monkeypatch.setattr(tasks, "load", parse)


def test_the_command_of_an_entry_parses_to_its_settings():
    for task in tasks.load():
        program, *arguments = shlex.split(task.command(seed=7))
        command = parsing.parse(arguments)
        assert program == "minerva"
        assert (command.agent, command.env, command.preset) == (task.agent, task.environment, task.preset)
        assert command.hyperparameters == task.make_config(), task
        assert (command.run.num_env_steps, command.run.seed) == (task.num_env_steps, 7), task


def test_the_preset_task_is_the_entrys_settings_and_steps():
    for task in tasks.load():
        command = parsing.parse(["train", task.agent, "--env", task.environment, "--preset", "task"])
        assert command.hyperparameters == task.make_config(), task
        assert command.run.num_env_steps == task.num_env_steps, task


def test_the_command_of_an_entry_with_settings_of_every_kind_parses_to_them(monkeypatch):
    text = LONG.replace(
        "discount = 0.995",
        'action_penalty = true, critic_target = "n_step", per_dimension_constraint = false',
    )
    task = parse(text)[0]
    command = parsing.parse(shlex.split(task.command(0))[1:])
    assert command.hyperparameters == task.make_config()
    assert command.hyperparameters.action_penalty and command.hyperparameters.critic_layer_sizes == (
        512,
        512,
        256,
    )


def test_flags_override_the_preset_task(long_entries):
    words = "train ppo --preset=task --environment=gymnasium/Pendulum-v1 --num-epochs 3 --num_env_steps 99"
    command = parsing.parse(words.split())
    assert (command.hyperparameters.num_epochs, command.hyperparameters.rollout_steps) == (3, 64)
    assert command.run.num_env_steps == 99


def test_where_there_is_no_entry_training_is_refused_with_the_way_out(
    long_entries, tmp_path, monkeypatch, call
):
    monkeypatch.chdir(tmp_path)
    status, out, err = call("train", "ppo", "--env", "Pendulum-v0", "--preset", "task")
    assert (status, out) == (2, "")
    assert err == (
        "minerva: ppo has no task preset for 'Pendulum-v0'; it has Pendulum-v1. Did you mean 'Pendulum-v1'? "
        "For any environment there are the presets default, control, memory, minerva."
    )
    assert not list(tmp_path.iterdir())


def test_without_an_environment_the_preset_task_asks_for_it(call):
    status, _, err = call("train", "ppo", "--preset", "task")
    assert status == 2
    assert "--env" in err


def test_other_presets_are_trained_for_the_steps_of_the_entry_too():
    command = parsing.parse(["train", "ppo", "--env", "CartPole-v1", "--preset", "control"])
    assert command.run.num_env_steps == tasks.find("ppo", "CartPole-v1").num_env_steps
    assert command.hyperparameters == registry.find("ppo").presets["control"]


def test_a_run_of_the_preset_task_goes_on_from_its_folder_when_the_entry_is_gone(
    long_entries, tmp_path, monkeypatch, call
):
    run = tmp_path / "run"
    words = ["train", "ppo", "--env", "Pendulum-v1", "--preset", "task", "--num-envs", 1, "--log", "csv"]
    options = ["--num-env-steps", 64, "--evaluation-episodes", 1, "--minibatch-size", 32, "--directory", run]
    assert call(*words, *options)[0] == 0
    monkeypatch.setattr(tasks, "load", lambda: ())
    status, out, _ = call("resume", run, "--num-env-steps", 128)
    assert status == 0
    assert "after 128 environment and" in out
    hyperparameters = json.loads((run / "run.json").read_text())["hyperparameters"]
    assert (hyperparameters["rollout_steps"], hyperparameters["num_epochs"]) == (64, 1)


def test_the_steps_of_the_entry_are_what_is_trained(long_entries, monkeypatch):
    calls = []
    monkeypatch.setattr(training, "_run", lambda plan: calls.append(plan.description) or 0)
    words = "train ppo --env Pendulum-v1 --preset task --seed 2 --log csv"
    assert main(words.split()) == 0
    (description,) = calls
    options = description.options
    assert (options["num_env_steps"], options["seed"], options["tensorboard"]) == (2_048, 2, False)
    assert description.make_config() == tasks.find("ppo", "Pendulum-v1").make_config()


def test_no_preset_has_the_name_that_looks_one_up():
    assert all("task" not in entry.presets for entry in registry.AGENTS.values())


def lines_of(capsys, *arguments):
    assert main(["list", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.promise("Presets")
def test_the_list_of_tasks_has_every_entry_in_80_columns_and_says_how_to_train(capsys):
    head, *rows, advice = lines_of(capsys, "tasks")
    assert max(map(len, (head, *rows, advice))) <= 80
    begun = [row.split()[:3] for row in rows if not row.startswith(" ")]
    assert begun == [[task.agent, task.preset, task.environment] for task in tasks.load()]
    assert begun == sorted(begun, key=lambda row: (list(registry.AGENTS).index(row[0]), row[2].lower()))
    end = head.index("steps") + len("steps")
    assert all(row[end - 1] != " " == row[end] for row in (head, *rows) if not row.startswith(" "))
    assert "minerva train AGENT --env ENVIRONMENT --preset task" in advice


def test_what_is_long_in_the_list_of_tasks_goes_on_below(long_entries, capsys):
    _, *rows, _ = lines_of(capsys, "tasks")
    assert rows == [
        "mpo   minerva dm_control/manipulator/insert_ball   1.5M  -2051  -12346 0.0 10.0",
        "                                                                8.5 7.5 12.0",
        "              --policy-layer-sizes 256 256 256 --critic-layer-sizes 512 512 256",
        "                --discount 0.995",
        "ppo   default Pendulum-v1                        2.048k  -1100  -1100",
        "              --rollout-steps 64 --num-epochs 1",
    ]


def test_a_word_filters_the_list_of_tasks(capsys):
    _, *rows, _ = lines_of(capsys, "tasks", "SwingUp")
    wanted = [task.agent for task in tasks.load() if "swingup" in task.environment]
    assert [row.split()[0] for row in rows if not row.startswith(" ")] == wanted


def test_the_list_of_everything_has_the_tasks_too(capsys):
    lines = lines_of(capsys)
    assert "Tasks:" in lines
    assert lines[-1].endswith("--preset task")
