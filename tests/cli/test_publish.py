"""`minerva publish` writes a folder and shows it; only --to uploads it."""

import dataclasses
import json
import pathlib
import re
import shlex
import shutil
import sys

import pytest
import yaml

import minerva_acme
from minerva_acme.agents import ppo
from minerva_acme.cli import parsing, video
from minerva_acme.runs import hub, policies
from tests import stand_in_hub
from tests.runs.short_run import train


class Own(ppo.PPOBuilder):
    pass


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(tmp_path_factory.mktemp("publish") / "run")


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    pytest.importorskip("huggingface_hub", reason="the extra `hub` is not installed")
    with stand_in_hub.serve(monkeypatch, tmp_path / "cache") as served:
        yield served


@pytest.fixture
def films(monkeypatch):
    """Films are files without pictures; gives what was asked for."""
    asked = []

    def run(command):
        (checkpoint,) = command.checkpoint
        assert policies.find(command.directory, checkpoint).path.exists()
        asked.append(command)
        command.output.write_bytes(b"film")

    monkeypatch.setattr(video, "run", run)
    return asked


def test_a_folder_is_written_and_shown_and_nothing_is_uploaded(trained, stand_in, films, tmp_path, call):
    output = tmp_path / "card"
    status, out, err = call("publish", trained, "--output", output, "--episodes", 3)
    assert (status, err) == (0, "")
    assert {path.name for path in output.iterdir()} == {hub.WEIGHTS, "run.json", "README.md", "replay.mp4"}
    assert stand_in.requests == []
    assert f"Nothing was uploaded. To upload it: minerva publish {trained} --to OWNER/NAME" in out
    card = (output / "README.md").read_text()
    assert " ".join(card.split()) in out
    for name in (hub.WEIGHTS, "run.json", "README.md", "replay.mp4"):
        assert f"{name} {(output / name).stat().st_size:,} bytes" in out
    assert json.loads((output / "run.json").read_text()) == json.loads((trained / "run.json").read_text())
    assert (films[0].directory, films[0].output) == (trained, output / "replay.mp4")

    _, header, text = card.split("---\n", 2)
    metadata = yaml.safe_load(header)
    assert metadata["library_name"] == "minerva-acme"
    assert metadata["pipeline_tag"] == "reinforcement-learning" and "CartPole-v1" in metadata["tags"]
    (model,) = metadata["model-index"]
    (result,) = model["results"]
    assert (model["name"], result["dataset"]["name"]) == ("PPO", "CartPole-v1")
    # The score is that of the file, which `minerva verify` plays.
    (metric,) = result["metrics"]
    mean, std = map(float, metric["value"].split(" +/- "))
    _, verified, _ = call("verify", output / hub.WEIGHTS)
    assert f"{mean:.1f} ± {std:.1f} {mean:.1f}" in verified and " same" in verified
    assert f"**Mean return {metric['value']}**" in text and "over 3 episodes" in text
    for line in (
        "# PPO on CartPole-v1\n",
        "minerva eval hf:OWNER/NAME --episodes 3\n",
        'policy = minerva_acme.load_policy("hf:OWNER/NAME")\n',
        "minerva train --config run.json\n",
        "in 16 environment steps, seed 0.",
        f"Trained with minerva-acme {minerva_acme.__version__} on ",
    ):
        assert line in text
    assert "import_code" not in text and "--import-code" not in text


def test_the_command_for_an_upload_can_be_pasted(trained, films, tmp_path, call, monkeypatch):
    shutil.copytree(trained, tmp_path / "a run")
    monkeypatch.chdir(tmp_path)
    flags = ["--checkpoint", "16", "--episodes", "2", "--no-video", "--output", "a card"]
    status, out, err = call("publish", "a run", *flags)
    assert status == 0, err
    (command,) = re.findall(r"To upload it: (.*)", out)
    asked = parsing.parse(shlex.split(command)[1:])
    assert asked == dataclasses.replace(parsing.parse(["publish", "a run", *flags]), to="OWNER/NAME")


@pytest.mark.parametrize("name", ["README.md", "run.json"])
def test_what_is_not_its_own_is_not_replaced(trained, tmp_path, call, name):
    (tmp_path / name).write_text("mine")
    status, _, err = call("publish", trained, "--output", tmp_path, "--episodes", 2, "--no-video")
    assert status == 2 and "`output` must" in err and "Choose another --output." in err
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_the_command_of_the_card_names_an_environment_of_ones_own(tmp_path, films, call, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_pole.py").write_text(
        "import gymnasium\ndef make(): return gymnasium.make('CartPole-v1')\n"
    )
    run = "train ppo --env own_pole:make --num-env-steps 32 --rollout-steps 16 --minibatch-size 8"
    flags = ["--num-environments", 2, "--evaluation-episodes", 1, "--replay", "memory", "--directory", "run"]
    assert call(*run.split(), *flags)[0] == 0
    status, _, err = call("publish", "run", "--import-code", "--episodes", 2)
    assert status == 0, err
    card = pathlib.Path("run/hub/README.md").read_text()
    assert "minerva train --config run.json --env own_pole:make\n" in card


def test_the_command_of_the_card_trains_again(trained, films, tmp_path, call):
    call("publish", trained, "--output", tmp_path / "card", "--episodes", 2)
    again = tmp_path / "again"
    command = ["train", "--config", tmp_path / "card" / "run.json", "--directory", again]
    status, _, err = call(*command)
    assert status == 0, err
    first, second = (json.loads((path / "run.json").read_text()) for path in (trained, again))
    for key in ("agent", "environment", "seed", "hyperparameters"):
        assert first[key] == second[key]


@pytest.mark.promise("Sharing")
def test_only_to_uploads_and_what_it_names_can_be_played(trained, stand_in, films, tmp_path, call, caplog):
    (tmp_path / "card").mkdir()
    (tmp_path / "card" / "notes.txt").write_text("mine")
    flags = ["--output", tmp_path / "card", "--to", "me/pole", "--private", "--episodes", 2]
    status, out, err = call("publish", trained, *flags)
    assert (status, err) == (0, "")
    ((commit, message, files),) = stand_in.commits["me/pole"]
    assert (message, stand_in.private) == ("PPO on CartPole-v1", {"me/pole": True})
    assert set(files) == {hub.WEIGHTS, "run.json", "README.md", "replay.mp4"}
    for name, content in files.items():
        assert content == (tmp_path / "card" / name).read_bytes()
    assert b"minerva eval hf:me/pole --episodes 2" in files["README.md"]
    (name,) = re.findall(r"Uploaded. To play these weights: minerva eval (\S+)", out)
    assert name == f"hf:me/pole@{commit}"
    status, out, err = call("eval", name, "--episodes", 2)
    assert (status, err) == (0, "")
    assert "ppo on CartPole-v1, 16 environment steps" in out
    assert not caplog.text
    assert call("eval", "hf:me/pole", "--episodes", 2)[0] == 0
    assert f"hf:me/pole is commit {commit} now. To pin it: {name}" in caplog.text


@pytest.mark.parametrize("to", ["pole", "me/pole/more", "hf:me/pole"])
def test_a_malformed_repository_is_refused_before_anything_is_played(trained, to, tmp_path, call):
    status, _, err = call("publish", trained, "--output", tmp_path / "card", "--to", to)
    assert status == 2 and "`--to` must be OWNER/NAME on the hub" in err
    assert not (tmp_path / "card").exists()


def test_a_missing_package_is_told_of_before_anything_is_played(trained, tmp_path, call, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    status, _, err = call("publish", trained, "--output", tmp_path / "card", "--to", "me/pole")
    assert status == 2 and "pip install 'minerva-acme[hub]'" in err
    assert not (tmp_path / "card").exists()


@pytest.mark.parametrize("flags", [[], ["--no-video"]])
def test_without_a_video_the_rest_is_written_and_an_older_video_is_removed(
    trained, flags, tmp_path, call, monkeypatch
):
    def run(command):
        assert not flags
        raise ValueError("nothing can be drawn here")

    monkeypatch.setattr(video, "run", run)
    (tmp_path / "card").mkdir()
    (tmp_path / "card" / "replay.mp4").write_bytes(b"of another checkpoint")
    status, out, _ = call("publish", trained, "--output", tmp_path / "card", "--episodes", 2, *flags)
    assert status == 0
    assert ("No video: nothing can be drawn here" in out) == (not flags)
    files = {path.name for path in (tmp_path / "card").iterdir()}
    assert files == {hub.WEIGHTS, "run.json", "README.md"}


def test_a_card_says_where_code_of_ones_own_is_needed(films, tmp_path, call):
    directory = train(tmp_path / "run", Own)
    if "unknown" in (described := json.loads((directory / "run.json").read_text())) and described["unknown"]:
        pytest.fail(f"the class can be imported: {described['unknown']}")
    status, _, err = call("publish", directory)
    assert status == 2 and "--import-code" in err
    status, _, err = call("publish", directory, "--import-code", "--episodes", 2)
    assert status == 0, err
    card = (directory / "hub" / "README.md").read_text()
    assert "minerva eval hf:OWNER/NAME --episodes 2 --import-code\n" in card
    assert 'load_policy("hf:OWNER/NAME", import_code=True)' in card
    assert f"minerva train --config run.json --agent {Own.__module__}:{Own.__qualname__}\n" in card
