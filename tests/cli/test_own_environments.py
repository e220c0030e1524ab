"""A user's own environments on the command line, from the current folder."""

import importlib
import json
import pathlib
import re
import sys

import gymnasium
import pytest

from tests.environments import own_modules

TINY = (
    "--num-env-steps 32 --rollout-steps 16 --minibatch-size 8 --num-epochs 1 --policy-layer-sizes 8"
    " --value-layer-sizes 8 --evaluation-episodes 1 --log csv --replay memory"
)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """The current folder, with modules of a user."""
    for name, text in own_modules.MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("minerva_acme.video.recording.choose_renderer", lambda: None)
    importlib.invalidate_caches()
    yield tmp_path
    forget(tmp_path)


def forget(here):
    """Makes this a process that never imported the modules."""
    for name in own_modules.MODULES:
        sys.modules.pop(name, None)
    sys.path[:] = [path for path in sys.path if path != str(here)]
    gymnasium.registry.pop("Mine-v0", None)


@pytest.mark.parametrize(
    ("name", "argument"), [("my_robot:Robot", "gravity=2"), ("my_gym:Walker", "length=2")]
)
@pytest.mark.promise("Your own environment")
def test_every_command_takes_it_and_only_a_typed_name_is_imported(name, argument, here, call):
    module, key = name.partition(":")[0], argument.partition("=")[0]
    status, out, err = call("check-env", name, "--env-kwargs", argument)
    assert status == 0, err
    assert f"{name}: 15 ok" in out  # and no face
    forget(here)
    command = f"train ppo --env {name} --env-kwargs {argument} {TINY} --directory run"
    status, out, err = call(*command.split())
    assert status == 0, err
    assert f"ppo on {name},{argument}, 32 steps" in out
    assert "To evaluate it again: minerva eval run --import-code" in out
    assert json.loads(pathlib.Path("run/run.json").read_text())["environment_settings"] == {key: 2}
    status, out, _ = call(*command.replace("steps 32", "steps 48").split())
    assert (status, "Resuming at 32 steps" in out) == (0, True)
    status, _, err = call(*command.replace("=2", "=3").split())
    assert (status, f"environment_settings is {{'{key}': 2}} there, {{'{key}': 3}} here" in err) == (2, True)
    for words in ("eval run/run.json --episodes 1", "collect run --episodes 1 --output rows"):
        forget(here)
        status, _, err = call(*words.split())
        assert (status, "allow that with --import-code" in err) == (2, True)
        assert module not in sys.modules
        assert call(*words.split(), "--import-code")[0] == 0
    forget(here)
    # A name that is typed is imported, here with another argument.
    status, out, err = call(*f"eval run --episodes 1 --env {name} --env-kwargs {key}=4".split())
    assert (status, f"ppo on {name},{key}=4, 48 environment steps" in out) == (0, True), err
    status, out, _ = call(*f"eval run --episodes 1 --env-kwargs {key}=4 --import-code --json".split())
    assert json.loads(out)["env_kwargs"] == {key: 4}
    [rows] = pathlib.Path("rows").glob("*.json")
    assert f"--env {name} --env-kwargs {argument}" in rows.read_text()
    forget(here)
    status, _, err = call(*["train", "--config", "run/run.json", "--directory", "again"])
    assert (status, f"--config run/run.json --env {name}" in err, module in sys.modules) == (2, True, False)
    assert call(*f"train --config run/run.json --env {name} --directory again".split())[0] == 0
    again = json.loads(pathlib.Path("again/run.json").read_text())
    assert again["environment_settings"] == {key: 2}


def test_the_same_command_resumes_a_run_whose_critic_sees_more(here, call):
    command = f"train ppo --env my_gym:Sorted --critic-observations hidden {TINY} --directory run"
    assert call(*command.split())[0] == 0
    status, out, err = call(*command.replace("steps 32", "steps 48").split())
    assert (status, "Resuming at 32 steps" in out) == (0, True), err
    status, _, err = call(*command.replace("hidden", "seen").split())
    assert (status, "critic_observations is ['hidden'] there, ['seen'] here" in err) == (2, True), err


def test_observations_stay_in_parts_in_every_command(here, call):
    """Also in a program that takes the observations of the bare environment."""
    status, out, err = call("check-env", "my_gym:Sorted")
    assert status == 0, err
    words = " ".join(out.split())
    takes = re.findall(
        r"(\w+) supported: observations [^;]* or apart \(--env-kwargs concatenate=false\)", words
    )
    assert {"ppo", "mpo", "dqn"} <= {*takes} and "sac" not in takes
    apart = "--env-kwargs concatenate=false"
    status, out, _ = call(*f"check-env my_gym:Sorted {apart}".split())
    assert status == 0 and "supported: observations {hidden: " in " ".join(out.split())
    train = f"train ppo --env my_gym:Sorted {apart} {TINY} --directory run"
    assert call(*train.split())[0] == 0
    described = json.loads(pathlib.Path("run/run.json").read_text())
    assert described["environment_settings"] == {"concatenate": False}
    assert {*described["environment_specs"]["observations"]["dict"]} == {"hidden", "seen"}
    for words in (
        train.replace("steps 32", "steps 48"),
        "eval run --episodes 1 --import-code",
        f"eval run --episodes 1 --env my_gym:Sorted {apart}",
        "export run --actions task --output run.pt2 --episodes 1 --import-code",
    ):
        status, _, err = call(*words.split())
        assert status == 0, (words, err)


def test_it_is_filmed_with_a_render_mode_and_refused_without_a_picture(here, call):
    for name, directory in (("my_gym:make", "film"), ("my_robot:Robot", "none")):
        assert call(*f"train ppo --env {name} {TINY} --directory {directory}".split())[0] == 0
    status, _, err = call(*["video", "film", "--episodes", "1", "--format", "gif", "--env", "my_gym:Walker"])
    assert status == 0, err
    status, _, err = call(*["video", "none", "--episodes", "1", "--format", "gif", "--import-code"])
    assert (status, "a `render` method that returns a picture, got a Robot." in err) == (2, True)
    status, out, err = call(*["video", "none", "--episodes", "1", "--env", "my_robot:Drawn"])
    assert (status, out, "`control_timestep` that returns the seconds of a step, got a Drawn." in err) == (
        2,
        "",  # no episode was played in vain
        True,
    )


def test_a_batched_environment_is_trained_in_resumed_and_evaluated_by_its_name(here, call):
    name = "my_batch:pendulums"
    command = f"train ppo --env {name} --env-kwargs number=8 --num-envs 8 --device cpu {TINY} --directory run"
    status, out, err = call(*command.split())
    assert status == 0, err
    assert f"ppo on {name},number=8, 32 steps" in out
    status, out, err = call(*command.replace("steps 32", "steps 48").split())
    assert (status, "Resuming at 32 steps" in out) == (0, True), err
    assert call(*["resume", "run", "--num-env-steps", "64", "--import-code"])[0] == 0
    forget(here)
    for words, way_out in (
        ("eval run --episodes 3", "--import-code"),
        (
            "train ppo --env my_batch:pendulums --num-env-steps 32",
            "`num_environments` in the agent's config to 4",
        ),
        ("check-env my_batch:pendulums", "--num-envs 4"),
        ("video run --import-code --episodes 1 --format gif", "Choose one of the same task with --env"),
        ("export run --import-code --output p.pt2", "`--actions agent --episodes 0`"),
        (
            "export run --import-code --output p.pt2 --actions task --episodes 0",
            "`--actions agent --episodes 0`",
        ),
    ):
        status, _, err = call(*words.split())
        assert (status, way_out in err) == (2, True), (words, err)
    status, out, err = call(*["eval", "run", "--episodes", "11", "--import-code", "--json"])
    assert (status, json.loads(out)["lengths"]) == (0, [5] * 11), err
    assert (
        call(
            *["export", "run", "--import-code", "--output", "p.pt2", "--actions", "agent", "--episodes", "0"]
        )[0]
        == 0
    )


def test_a_sweep_gives_the_arguments_to_every_run(here, call):
    words = (
        "sweep ppo --env my_robot:Robot --env-kwargs gravity=2 --env-kwargs gravity=3 --seeds 0 1 --dry-run"
    )
    _, _, err = call(*words.split())
    assert "--range my_robot:Robot,gravity=3=LOWEST:HIGHEST" in err
    status, out, _ = call(*words.split(), "--range", "my_robot:Robot,gravity=3=-20:0")
    assert (status, out.count("--env my_robot:Robot --env-kwargs gravity=2 gravity=3")) == (0, 2)


def test_a_table_of_a_file_gives_the_arguments(here, call):
    pathlib.Path("own.toml").write_text('agent = "ppo"\n[env_kwargs]\ngravity = 2.5\n')
    status, _, err = call(*f"train --config own.toml --env my_robot:Robot {TINY} --directory run".split())
    assert status == 0, err
    assert json.loads(pathlib.Path("run/run.json").read_text())["environment_settings"] == {"gravity": 2.5}


def test_an_environment_in_place_of_a_builder_is_recognised(here, call):
    status, _, err = call("train", "my_robot:Robot")
    assert status == 2 and "It looks like an environment: minerva train ppo --env my_robot:Robot" in err


def test_help_and_version_are_words_too(call):
    assert call("help")[:2] == call("--help")[:2]
    assert call("help", "eval")[:2] == call("eval", "--help")[:2]
    assert call("version")[:2] == call("--version")[:2]


def test_a_folder_above_runs_names_the_newest(here, call):
    folder = here / "runs" / "a b" / "seed0"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    assert call("eval", "runs")[2].endswith("run.json is missing. The newest below it is 'runs/a b/seed0'.")
