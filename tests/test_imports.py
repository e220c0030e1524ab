"""What an import brings in, each seen in a fresh process."""

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

HEAVY = [
    "dm_control",
    "gymnasium",
    "matplotlib",
    "mujoco",
    "ray",
    "reverb",
    "tensorboard",
    "tensorflow",
    "wandb",
]
# A module about a library may import it.
ABOUT = {
    "minerva_acme.plotting.figure": "matplotlib",
    "minerva_acme.environments.gymnasium_adapter": "gymnasium",
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


def test_no_module_brings_in_a_heavy_library(
    source_files: dict[str, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    brought = answer(
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


def test_torch_threads_wait_without_spinning_unless_the_user_says_otherwise(tmp_path: pathlib.Path) -> None:
    code = "import json, os, minerva_acme; print(json.dumps(os.environ['OMP_WAIT_POLICY']))"
    assert answer(code, tmp_path) == "PASSIVE"
    assert answer(code, tmp_path, OMP_WAIT_POLICY="ACTIVE") == "ACTIVE"


@pytest.mark.parametrize("folder", ["adders", "agents"])
def test_a_folder_is_refused_under_its_bare_name(folder: str, repository: pathlib.Path) -> None:
    done = run_python(f"import {folder}", repository)
    assert done.returncode != 0
    assert f"ImportError: `{folder}` is installed as `minerva_acme.{folder}`" in done.stderr
