"""Settings of files go to the fields of their names, by type: none becomes a word of the command line."""

import dataclasses
import functools
import itertools
import json
import math
import os
import sys

import pytest

from minerva_acme.agents import registry
from minerva_acme.cli import flags, parsing

MODULE = "evil_module"
WORDS = [
    f"{MODULE}:Evil-v0",
    f"--env={MODULE}:Evil-v0",
    f"0.001 --env {MODULE}:Evil-v0",
    ["0.001", "--env", f"{MODULE}:Evil-v0"],
    ["--agent", f"{MODULE}:Builder"],
    ["--record", "outside"],
]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder with a module that must not be imported."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{MODULE}.py").write_text("open('imported', 'w').close()\n")
    before = [*sys.path]
    yield tmp_path
    sys.path[:] = before
    assert MODULE not in sys.modules and not (tmp_path / "imported").exists()


def parse_settings(typed="", **settings):
    settings = {"agent": "ppo", "env": "CartPole-v1", **settings}
    name = "run.json" if None in settings.values() else "settings.toml"  # which has no None
    with open(name, "w") as file:
        file.write(json.dumps(settings) if name == "run.json" else to_toml(settings))
    return parsing.parse(["train", "--config", name, *typed.split()])


def to_toml(settings):
    """In which strings, numbers and lists are written as in JSON."""
    lines = [
        f"{json.dumps(key)} = {json.dumps(value)}"
        for key, value in settings.items()
        if type(value) is not dict
    ]
    tables = {key: value for key, value in settings.items() if type(value) is dict}
    return "\n".join([*lines, *(f"[{key}]\n{to_toml(value)}" for key, value in tables.items())]).replace(
        "NaN", "nan"
    )


@functools.cache
def settings_of(agent):
    """A name and the text of the type of every setting that a file may have."""
    return {
        flag.removeprefix("--").replace("-", "_"): str(kind)
        for flag, kind in flags.of(parsing.train_command(agent))
        if not flag.startswith("--no-")
    }


AGENTS = ["ppo", *(each for each in registry.AGENTS if each != "ppo")]


@pytest.mark.parametrize("agent", AGENTS)
def test_a_word_in_any_setting_is_its_value_or_refused(agent):
    names = settings_of(agent)
    for other in itertools.takewhile(lambda each: each != agent, AGENTS):
        names = dict(names.items() - settings_of(other).items())  # read by the same code
    env = "CartPole-v1" if "ppo" in agent else "Pendulum-v1"
    for index, name in enumerate(names):
        for value in (WORDS * 2)[index % len(WORDS) :][: 2 if agent == "ppo" else 1]:
            try:
                command = parse_settings(**{"agent": agent, "env": env, "num_env_steps": 9, name: value})
            except ValueError as error:
                assert "\n" not in str(error)
                continue
            given = {**vars(command), **vars(command.run), **vars(command.hyperparameters)}
            found = given.pop(name)
            assert (
                str(found) if name == "directory" else list(found) if type(found) is tuple else found
            ) == value
            assert command.env == env and MODULE not in str({**given, "run": 0, "hyperparameters": 0}), (
                name,
                value,
            )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "learning_rate",
            ["0.001", "--env", "x:Y"],
            "`learning_rate` must be a number, got ['0.001', '--env'",
        ),
        ("learning_rate", "0.001", "`learning_rate` must be a number, got '0.001'"),
        ("learning_rate", True, "`learning_rate` must be a number, got True"),
        ("learning_rate", math.nan, "its numbers must be finite, got nan"),
        ("num_epochs", 1.5, "`num_epochs` must be a whole number, got 1.5"),
        ("num_epochs", -1, "`num_epochs` must be >= 1"),
        ("squash_actions", "yes", "`squash_actions` must be true or false, got 'yes'"),
        ("no_squash_actions", True, "has no flag --no-squash-actions"),
        ("torso", "--env", "`torso` must be one of 'tanh'"),
        ("log", ["csv", "--env"], "`log` must be a list, each one of 'csv', 'tensorboard', 'wandb', got"),
        ("policy_layer_sizes", 64, "`policy_layer_sizes` must be a list, each a whole number, got 64"),
        ("policy_layer_sizes", [64, [64]], "must be a list, each a whole number"),
        ("config", "other.toml", "has no flag --config"),
        ("help", True, "has no flag --help"),
        ("discount --env x:Y", 0.9, "has no flag --discount --env x:Y"),
        ("env", "x:Y", "names code, which would be run: x:Y"),
        ("address", "10.0.0.1:6379", "names code, which would be run: 10.0.0.1:6379"),
        ("agent", "x:Y", "names code, which would be run: x:Y"),
        ("agent", "--env=CartPole-v1", "There is no agent '--env=CartPole-v1'"),
        ("agent", ["ppo"], "`agent` must be a name, got ['ppo']"),
        ("max_unpacked_gigabytes", 2.5, "must be typed to be above 1, since it protects from files, got 2.5"),
        ("env_kwargs", {"a=1,b": 2}, "must hold arguments by name"),
        ("env_kwargs", {"seed": 2}, "must not set the seed"),
    ],
)
def test_a_value_of_another_type_is_refused_in_one_line(name, value, message):
    with pytest.raises(ValueError) as caught:
        parse_settings(**{name: value})
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_what_runs_code_or_lifts_a_limit_is_taken_from_what_is_typed():
    command = parse_settings("--max-unpacked-gigabytes 3", max_unpacked_gigabytes=2.5)
    assert command.run.max_unpacked_gigabytes == 3.0
    assert parse_settings(max_unpacked_gigabytes=0.5).run.max_unpacked_gigabytes == 0.5
    command = parse_settings("--env Acrobot-v1 --address auto", env="x:Y", address="10.0.0.1:6379")
    assert (command.env, command.address) == ("Acrobot-v1", "auto")


def test_whole_numbers_lists_and_none_are_read_as_their_fields_have_them():
    command = parse_settings(
        num_env_steps=1e4,
        learning_rate=1,
        policy_layer_sizes=[8, 4.0],
        stop_at=None,
        target_kl=None,
        directory="runs/x",
        env_kwargs={"gravity": 2, "name": "--env x:Y"},
    )
    config = command.hyperparameters
    assert (command.run.num_env_steps, config.learning_rate, config.policy_layer_sizes) == (
        10_000,
        1.0,
        (8, 4),
    )
    assert type(config.learning_rate) is float and type(command.run.num_env_steps) is int
    assert (command.run.stop_at, config.target_kl, str(command.directory)) == (None, None, "runs/x")
    assert command.env_kwargs == ("gravity=2", 'name="--env x:Y"')


def test_typed_settings_add_to_those_of_a_file_before_they_are_checked_together():
    with pytest.raises(ValueError, match="`final_demonstration_share` must not be set without"):
        parse_settings(final_demonstration_share=0.1)
    with pytest.raises(ValueError, match="`minibatch_size` must be <= `rollout_steps`"):
        parse_settings(minibatch_size=4096)
    command = parse_settings("--rollout-steps 4096", minibatch_size=4096)
    assert (command.hyperparameters.rollout_steps, command.hyperparameters.minibatch_size) == (4096, 4096)
    command = parse_settings("--env-kwargs a=1", env_kwargs=["b=2"])
    assert command.env_kwargs == ("b=2", "a=1")


def test_a_file_decides_the_defaults_that_follow_from_it():
    by_task = parse_settings(preset="task")
    assert (
        by_task.hyperparameters
        == parsing.parse(["train", "ppo", "--env", "CartPole-v1", "--preset", "task"]).hyperparameters
    )
    offline = parse_settings("--directory x", agent="bc", dataset="data/a")
    assert (offline.env, offline.run.num_env_steps, offline.run.num_learner_steps) == (
        "CartPole-v1",
        0,
        20_000,
    )


def test_a_file_is_no_pipe_not_too_large_and_not_too_deep(here):
    os.mkfifo("pipe.toml")
    (here / "deep.toml").write_text("a = " + "[" * 100_000)
    with open("large.toml", "wb") as file:
        file.truncate(10**10)
    for name, message in (("pipe", "not a regular file"), ("deep", "64 deep"), ("large", "10,000,000,000")):
        with pytest.raises(ValueError, match=f"`config` must be a TOML file .*{name}.toml: .*{message}"):
            parsing.parse(["train", "--config", f"{name}.toml"])


def test_a_command_is_checked_once_with_all_of_its_values():
    command = parse_settings("--seed 3")
    assert dataclasses.replace(command.run) == command.run and command.run.seed == 3


def test_the_file_of_an_older_run_has_options_by_their_old_names():
    assert parse_settings(num_env_steps=9, stop_at_return=7.0, target_kl=None).run.stop_at == 7.0
