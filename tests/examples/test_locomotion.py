"""The bodies of dm_control's locomotion train by the commands of their page."""

import pathlib
import re
import shlex

import numpy as np
import pytest

from minerva_acme import environments, wrappers
from minerva_acme.cli import main

pytest.importorskip("labmaze", reason="composer's arenas need it, and it has no wheels for Python 3.13")

REPOSITORY = pathlib.Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "how-to" / "locomotion.md"
SHORT = {
    "--num-env-steps": "100",
    "--num-actors": "1",
    "--evaluation-period": "0",
    "--evaluation-episodes": "1",
    "--batch-size": "8",
    "--samples-per-insert": "2",
    "--min-replay-size": "30",
    "--policy-layer-sizes": "8",
    "--critic-layer-sizes": "8",
}


@pytest.fixture(autouse=True)
def folder(monkeypatch, own_modules_are_forgotten):
    monkeypatch.chdir(REPOSITORY / "examples")
    monkeypatch.syspath_prepend(REPOSITORY / "examples")


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("inline", marks=pytest.mark.reverb),
        pytest.param("ray", marks=[pytest.mark.reverb, pytest.mark.ray, pytest.mark.timeout(900)]),
    ],
)
def test_the_command_of_the_page_trains_with_actors(engine, tmp_path, capsys):
    text = PAGE.read_text().replace("\\\n", "")
    (command,) = re.findall(r"^minerva (train .*)$", text, re.MULTILINE)
    changed = {"--distributed": engine, "--directory": str(tmp_path / "run"), **SHORT}
    for flag in [flag for flag in changed if flag in command]:
        command = re.sub(rf"{flag} \S+", "", command)
    arguments = [*shlex.split(command), *(part for pair in changed.items() for part in pair)]
    assert main([*arguments, "--env-kwargs", "time_limit=0.5"]) == 0, capsys.readouterr()
    assert "after 100 environment" in capsys.readouterr().out


@pytest.mark.parametrize(("body", "falls"), [("ant", False), ("rodent", True), ("humanoid", True)])
def test_a_fall_is_terminal_and_the_time_limit_is_not(body, falls):
    def last_discount(time_limit, size):
        environment = environments.make_training_environment(f"locomotion:{body}", 0, time_limit=time_limit)
        timestep, generator = environment.reset(), np.random.default_rng(0)
        assert timestep.observation.dtype == np.float32 and timestep.observation.ndim == 1
        while not timestep.last():
            actions = generator.uniform(-size, size, environment.action_spec().shape)
            timestep = environment.step(actions.astype(np.float32))
        return float(timestep.discount)

    assert last_discount(0.04, 0.0) == 1.0
    assert last_discount(3.0, 1.0) == (0.0 if falls else 1.0)


def test_a_restored_environment_of_composer_continues_with_the_same_episodes():
    from dm_control import composer
    from dm_control.locomotion import arenas, tasks, walkers

    def make():
        task = tasks.GoToTarget(walkers.Ant(), arenas.Floor())  # at a random place, as is the target
        environment = composer.Environment(task, random_state=3, strip_singleton_obs_buffer_dim=True)
        return environments.make_training_environment(wrappers.DmControlRandomState(environment))

    uninterrupted = make()
    first = uninterrupted.reset().observation
    state = uninterrupted.save()
    expected = uninterrupted.reset().observation
    resumed = make()
    resumed.restore(state)
    np.testing.assert_array_equal(resumed.reset().observation, expected)
    assert not np.array_equal(first, expected)
