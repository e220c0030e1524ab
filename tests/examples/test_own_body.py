"""The page on a body of one's own does what it says, from the file to a policy without this library."""

import dataclasses
import pathlib
import re
import runpy
import shlex
import shutil
import sys

import numpy as np
import pytest

from minerva_acme import environments, experiments
from minerva_acme.cli import main
from minerva_acme.video import recording

REPOSITORY = pathlib.Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "how-to" / "own-body.md"
pytest.importorskip("dm_control")


@pytest.fixture
def folder(tmp_path, monkeypatch, own_modules_are_forgotten):
    for name in ("own_body.py", "arm.xml"):
        shutil.copy(REPOSITORY / "examples" / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(recording, "choose_renderer", lambda: None)  # for good, in this process
    return tmp_path


def test_the_commands_of_the_page_lead_to_a_policy_without_this_library(folder, monkeypatch, capsys):
    run_experiment = experiments.run_experiment

    def run_shortly(config, *callbacks, **options):
        builder = config.builder
        small = {"batch_size": 4, "min_replay_size": 20, "samples_per_insert": 1.0}
        layers = {"policy_layer_sizes": (8,), "critic_layer_sizes": (8,)}
        short = {"num_env_steps": 40, "evaluation_episodes": 1, "evaluation_period": 0}
        builder = type(builder)(dataclasses.replace(builder.config, **small, **layers))
        changed = dataclasses.replace(config, builder=builder, tensorboard=False, replay="memory", **short)
        return run_experiment(changed, *callbacks, **options)

    monkeypatch.setattr(experiments, "run_experiment", run_shortly)
    body = folder / "own_body.py"
    body.write_text(body.read_text().replace("num_steps: int = 100", "num_steps: int = 10"))
    commands = re.findall(r"^minerva (.*)$", PAGE.read_text(), re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["check-env", "train", "video", "export"]
    for command in commands:
        shorter = {"video": ["--episodes", "1", "--every", "50"], "export": ["--episodes", "1"]}
        arguments = shlex.split(command)
        assert main([*arguments, *shorter.get(arguments[0], [])]) == 0, (command, capsys.readouterr())
    assert "15 ok, 0 warnings, 0 wrong" in capsys.readouterr().out
    assert (folder / "reach.mp4").stat().st_size > 0
    (script,) = re.findall(r"^```python play\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    monkeypatch.setitem(sys.modules, "minerva_acme", None)  # it cannot be imported
    exec(compile(script, PAGE, "exec"), {})
    assert re.fullmatch(r"from 0\.283 m to \d\.\d{3} m\n", capsys.readouterr().out)


def test_the_random_state_of_composers_environments_is_saved(folder):
    first, second = (environments.make("own_body:reach", seed=seed, num_steps=3) for seed in (0, 1))
    start = first.reset().observation
    second.restore(first.save())
    following = first.reset().observation
    assert not np.array_equal(following["angles"], start["angles"])
    np.testing.assert_array_equal(second.reset().observation["angles"], following["angles"])
    actions = [[0.0, 0.0]] * 3
    assert [first.step(action).last() for action in actions] == [False, False, True]


def test_random_actions_reach_the_target_by_chance_alone(folder):
    result = runpy.run_path("own_body.py", run_name="__main__")["result"]
    assert 0.0 < result < 30.0
