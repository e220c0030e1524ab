"""What an import brings in, each seen in a fresh process."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from .nursery import Nursery

HEAVY = [
    "dm_control",
    "gymnasium",
    "jax",
    "matplotlib",
    "mujoco",
    "optuna",
    "ray",
    "reverb",
    "tensorboard",
    "tensorflow",
    "wandb",
]
# A module about a library may import it.
ABOUT = {
    "minerva_acme.cli.study": "optuna",
    "minerva_acme.plotting.figure": "matplotlib",
    "minerva_acme.plotting.report_figures": "matplotlib",
    "minerva_acme.environments.gymnasium_adapter": "gymnasium",
    "minerva_acme.environments.gymnasium_batch": "gymnasium",
    "minerva_acme.environments.gymnasium_from_dm_env": "gymnasium",
    "minerva_acme.environments.gymnasium_spaces": "gymnasium",
    "minerva_acme.environments.gymnasium_vector": "gymnasium",
}


def run_python(code: str, folder: pathlib.Path, **environment: str) -> subprocess.CompletedProcess[str]:
    # From `folder`, which `-c` puts on sys.path.
    kept = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=kept | environment, capture_output=True, text=True
    )


def answer(code: str, folder: pathlib.Path, **environment: str) -> Any:
    done = run_python(code, folder, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def with_torch() -> Iterator[Nursery]:
    """Processes that have imported torch, which is none of the heavy libraries, and nothing else."""
    with contextlib.closing(Nursery("torch")) as nursery:
        yield nursery


def answer_with_torch(nursery: Nursery, code: str, folder: pathlib.Path) -> Any:
    child = nursery.start(f"import os; os.chdir({str(folder)!r})\n{code}")
    with child.stdout:
        said = child.stdout.read()
    assert child.wait() == 0, said
    return json.loads(said)


def test_no_module_brings_in_a_heavy_library(
    source_files: dict[str, pathlib.Path], tmp_path: pathlib.Path, with_torch: Nursery
) -> None:
    brought = answer_with_torch(
        with_torch,
        f"""
import importlib, json, sys
brought = {{}}
for module in {[name for name in source_files if name not in ABOUT]}:
    importlib.import_module(module)
    new = [name for name in {HEAVY} if name in sys.modules and name not in sum(brought.values(), [])]
    if new:
        brought[module] = new
print(json.dumps(brought))
""",
        tmp_path,
    )
    assert brought == {}


def test_the_package_itself_does_not_load_torch(tmp_path: pathlib.Path) -> None:
    loaded = answer("import json, sys, minerva_acme; print(json.dumps('torch' in sys.modules))", tmp_path)
    assert not loaded


COMMANDS = """
import contextlib, io, json, sys
from minerva_acme.cli import main
answers = []
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            status = main(command.split())
        except SystemExit as stopped:
            status = stopped.code
    answers.append([status, sorted(sys.modules)])
print(json.dumps(answers))
"""


def modules_of(folder: pathlib.Path, *commands: str) -> list[tuple[int, set[str]]]:
    """Returns the exit status of each command, and the modules that are loaded then, in one process."""
    code = f"import sys; sys.argv[1:] = {[json.dumps(commands)]}; exec({COMMANDS!r})"
    return [(status, set(modules)) for status, modules in answer(code, folder)]


QUICK = {
    "--help": 0,
    "--version": 0,
    "train --help": 0,
    "train mpo --help": 0,
    "train ppo --total-timesteps 9": 2,
    "list agents": 0,
    "list presets": 0,
    "list tasks": 0,
    "train ppo --help": 0,
    "resume --help": 0,
    "demo --help": 0,
    "demo --minutes some": 2,
    "sweep ppo --help": 0,
    "sweep ppo --env Pendulum-v1 --discont 0.9": 2,
    "trian mpo": 2,
    "train pop": 2,
    "train mpo": 2,
    "train mpo --env Pendulum-v1 --num-env-stps 10": 2,
    "train vmpo --env Pendulum-v1 --num-env-steps many": 2,
    "train ppo --env Pendulum-v1 --num-env-steps 10 --discount 2": 2,
    "plot --aggregat": 2,
}


def test_help_lists_and_wrong_flags_load_no_library_that_is_slow_to_import(tmp_path: pathlib.Path) -> None:
    found = dict(zip(QUICK, modules_of(tmp_path, *QUICK), strict=True))
    assert {command: status for command, (status, _) in found.items()} == QUICK
    assert "rich" not in found["train ppo --total-timesteps 9"][1]
    slow = {"torch", "numpy", *HEAVY}
    assert {command: slow & modules for command, (_, modules) in found.items() if slow & modules} == {}


def test_help_does_not_look_for_installed_agents(tmp_path: pathlib.Path) -> None:
    ((_, modules),) = modules_of(tmp_path, "--help")
    assert "minerva_acme.agents.registry" in modules
    assert "importlib.metadata" not in modules


def test_the_environments_are_listed_without_a_simulator_or_torch(tmp_path: pathlib.Path) -> None:
    for status, modules in modules_of(tmp_path, "list", "list environments"):
        assert status == 0
        # What Gymnasium has registered, it alone knows.
        assert {"torch", *HEAVY} & modules == {"gymnasium"}


def test_configs_and_options_load_neither_torch_nor_numpy(tmp_path: pathlib.Path) -> None:
    code = """
import json, sys
from minerva_acme import experiments, runs
from minerva_acme.agents import on_policy, registry
for entry in registry.AGENTS.values():
    assert isinstance(entry.presets["default"], entry.config)
on_policy.OnPolicyConfig
experiments.RunOptions(num_env_steps=1)
print(json.dumps([name for name in ("numpy", "torch") if name in sys.modules]))
"""
    assert answer(code, tmp_path) == []


def test_a_runs_policy_is_loaded_without_replay_stores_and_simulators(
    tmp_path: pathlib.Path, with_torch: Nursery
) -> None:
    train = """
import json, sys
from minerva_acme import environments, experiments, runs
from minerva_acme.agents import ppo
make = lambda seed: environments.make_training_environment("CartPole-v1", seed=seed)
sizes = dict(num_environments=1, rollout_steps=16, minibatch_size=8, num_epochs=1)
experiments.run_experiment(experiments.ExperimentConfig(
    builder=ppo.PPOBuilder(ppo.PPOConfig(**sizes)), environment_factory=make, directory="run",
    num_env_steps=16, evaluation_episodes=1, replay="memory", tensorboard=False))
runs.export_policy("run", "policy.safetensors")
print(json.dumps("sympy" in sys.modules))
"""
    load = f"""
import json, sys
import minerva_acme
import numpy as np
actions = []
for path in ("run", "policy.safetensors"):
    policy = minerva_acme.load_policy(path)
    actions.append(int(policy(np.ones(4, np.float32)).action))
print(json.dumps([actions, [name for name in {HEAVY} if name in sys.modules]]))
"""
    assert (
        answer_with_torch(with_torch, train, tmp_path) is False
    )  # torch imports it for some methods of tensors without memory
    actions, heavy = answer_with_torch(with_torch, load, tmp_path)
    assert actions[0] == actions[1] and heavy == []


def test_torch_threads_wait_without_spinning_unless_the_user_says_otherwise(tmp_path: pathlib.Path) -> None:
    code = "import json, os, minerva_acme; print(json.dumps(os.environ['OMP_WAIT_POLICY']))"
    assert answer(code, tmp_path) == "PASSIVE"
    assert answer(code, tmp_path, OMP_WAIT_POLICY="ACTIVE") == "ACTIVE"


def test_a_clone_that_is_not_installed_says_how_to_install_it(repository: pathlib.Path) -> None:
    # Without the packages of this environment, which hold a link to the clone.
    command = [sys.executable, "-S", "-c", "from minerva_acme.agents import ppo"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    assert re.search(r"ModuleNotFoundError: .*`pip install -e \"\.\[tested\]\"`", done.stderr)


@pytest.mark.parametrize("folder", ["adders", "agents"])
def test_a_folder_is_refused_under_its_bare_name(folder: str, repository: pathlib.Path) -> None:
    done = run_python(f"import {folder}", repository)
    assert done.returncode != 0
    assert f"ImportError: `{folder}` is installed as `minerva_acme.{folder}`" in done.stderr
