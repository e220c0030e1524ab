"""Runs that were made by `run_experiment`, in the hands of the command line."""

import importlib
import json
import re
import shutil
import sys

import pytest

from minerva_acme import environments, experiments, observers
from minerva_acme.agents import ppo

SIZES = {"num_environments": 1, "rollout_steps": 16, "minibatch_size": 8, "num_epochs": 1}
SIZES |= {"policy_layer_sizes": (8,), "value_layer_sizes": (8,)}
MODULE = """
from minerva_acme import environments, wrappers
from minerva_acme.agents import ppo


class TheirBuilder(ppo.PPOBuilder):
    pass


def make_environment(seed):
    environment = environments.make_training_environment("Pendulum-v1", seed=seed, render_mode="rgb_array")
    return wrappers.StepLimitWrapper(environment, max_steps=12)
"""


def run(directory, builder, factory, **overrides):
    config = experiments.ExperimentConfig(
        **{
            "builder": builder,
            "environment_factory": factory,
            "directory": directory,
            "num_env_steps": 32,
            "evaluation_episodes": 1,
            "replay": "memory",
            "tensorboard": False,
            **overrides,
        }
    )
    experiments.run_experiment(config)
    return directory


def make_pendulum(seed):
    return environments.make_training_environment("Pendulum-v1", seed=seed)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run of an agent of this library on an environment by id."""
    builder = ppo.PPOBuilder(ppo.PPOConfig(**SIZES))
    return run(tmp_path_factory.mktemp("runs") / "plain", builder, make_pendulum)


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    """A run of a user's agent and environment, whose module nobody has imported since."""
    (tmp_path / "their_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("their_module")
    directory = run(tmp_path / "run", module.TheirBuilder(ppo.PPOConfig(**SIZES)), module.make_environment)
    del sys.modules["their_module"]
    yield directory
    sys.modules.pop("their_module", None)


def test_such_a_run_is_evaluated(plain, call):
    status, out, err = call("eval", plain, "--episodes", 1)
    assert (status, err) == (0, "")
    assert "ppo on Pendulum-v1, 32 environment steps: return -" in out


@pytest.mark.promise("A run made in Python with the library's agents and environments is")
def test_it_is_resumed_for_longer_from_its_folder_alone(plain, tmp_path, call):
    directory = shutil.copytree(plain, tmp_path / "run")
    status, out, err = call("resume", directory, "--num-env-steps", 64)
    assert (status, err) == (0, "")
    assert "Resuming at 32 steps" in out
    assert "after 64 environment" in out
    assert json.loads((directory / "run.json").read_text())["options"]["num_env_steps"] == 64


def test_the_command_line_goes_on_with_it_where_the_settings_are_the_same(plain, tmp_path, call):
    directory = shutil.copytree(plain, tmp_path / "run")
    flags = (
        "--policy-layer-sizes 8 --value-layer-sizes 8 --rollout-steps 16 --minibatch-size 8 --num-epochs 1"
    )
    flags += " --num-environments 1 --num-env-steps 48 --evaluation-episodes 1 --replay memory --log csv"
    status, out, _ = call("train", "ppo", "--env", "Pendulum-v1", "--directory", directory, *flags.split())
    assert status == 0 and "Resuming at 32 steps" in out


def test_it_is_plotted_also_without_its_code(plain, theirs, tmp_path, call):
    status, _, err = call("plot", plain, theirs, "--output", tmp_path / "curve.png")
    assert status == 0 and (tmp_path / "curve.png").exists(), err
    assert "their_module" not in sys.modules


@pytest.mark.parametrize("command", ["eval", "resume", "video", "export"])
def test_code_of_a_users_own_is_imported_only_on_request(command, theirs, call):
    status, _, err = call(command, theirs, *(["--num-env-steps", 64] if command == "resume" else []))
    assert status == 2
    assert "is `their_module:" in err
    assert "if you trust this run, allow that with --import-code" in err
    assert "their_module" not in sys.modules


def test_on_request_it_is_evaluated_resumed_and_exported(theirs, call):
    status, out, _ = call("eval", theirs, "--episodes", 1, "--import-code")
    assert status == 0 and "episode 1" in out and "length 12" in out
    status, out, _ = call("resume", theirs, "--num-env-steps", 64, "--import-code")
    assert status == 0 and "after 64 environment" in out
    status, out, _ = call("export", theirs, "--import-code", "--episodes", 2)
    assert status == 0 and ", import_code=True)(observation).action" in out
    (weights,) = theirs.glob("policy-*.safetensors")
    assert call("verify", weights)[0] == 2
    assert call("verify", weights, "--import-code")[0] == 0


def test_on_request_it_is_filmed(theirs, call, monkeypatch):
    monkeypatch.setattr("minerva_acme.video.recording.choose_renderer", lambda: None)
    status, _, err = call("video", theirs, "--episodes", 1, "--format", "gif", "--import-code")
    assert status == 0, err
    assert list((theirs / "videos").glob("*.gif"))


def test_a_run_with_observers_is_resumed_from_python_alone(tmp_path, call):
    builder = ppo.PPOBuilder(ppo.PPOConfig(**SIZES))
    directory = run(tmp_path / "run", builder, make_pendulum, observers=[observers.ActionNorm()])
    status, _, err = call("resume", directory, "--num-env-steps", 64)
    assert status == 2 and "can be resumed only from Python: `observers` cannot be stored." in err
    assert call("eval", directory, "--episodes", 1)[0] == 0


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ([], "policy-000000032.safetensors"),
        (["--format", "pt2", "--episodes", "1"], "policy-000000032.pt2"),
        (["--output", "<run>/mine.bin", "--format", "safetensors"], "mine.bin"),
        (["--checkpoint", "32"], "policy-000000032.safetensors"),
        (["<checkpoint>", "--output", "<run>/mine.safetensors"], "mine.safetensors"),
    ],
)
def test_export_writes_one_file_and_says_how_to_use_it(flags, name, plain, tmp_path, call):
    directory = shutil.copytree(plain, tmp_path / "run")
    flags = [flag.replace("<run>", str(directory)) for flag in flags]
    before = set(directory.iterdir())
    place = directory
    if flags[:1] == ["<checkpoint>"]:
        place, flags = directory / "checkpoints" / "000000032", flags[1:]
    status, out, err = call("export", place, *flags)
    assert (status, err) == (0, "")
    assert set(directory.iterdir()) - before == {directory / name}
    assert f"Wrote {directory / name} from checkpoint 000000032." in out
    use = "torch.export.load" if name.endswith("pt2") else "minerva_acme.load_policy"
    assert f"{use}('{directory / name}')" in out
    compared = re.findall(r"difference from the policy: (\S+) of the action range, over 8 episodes", out)
    assert len(compared) == ("1" in flags)
    assert all(float(largest) <= 1e-6 for largest in compared)


def test_onnx_without_its_packages_is_told_of_before_anything_is_made(plain, tmp_path, call, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    status, _, err = call("export", plain, "--output", tmp_path / "policy.onnx")
    assert status == 2
    assert "needs 'onnx'" in err and "Python 3.12" in err and "pip install 'minerva-acme[onnx]'" in err
    assert not list(tmp_path.iterdir())


def test_export_of_a_suffix_that_is_no_format_is_refused(plain, tmp_path, call):
    status, _, err = call("export", plain, "--output", tmp_path / "policy.pt")
    assert status == 2
    assert "There is no format 'pt'; there are safetensors, pt2, onnx. Did you mean 'pt2'?" in err


def test_what_is_no_run_cannot_be_exported(tmp_path, call):
    (tmp_path / "policy.safetensors").touch()
    for name, found in (("policy.safetensors", "a file"), ("nothing", "no folder")):
        status, _, err = call("export", tmp_path / name, "--output", tmp_path / "new.pt2")
        assert status == 2 and f"must be the folder of a run, got {tmp_path / name}, which is {found}." in err
