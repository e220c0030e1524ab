import configparser
import pathlib
import re
import subprocess
import sys

import pytest

from minerva_acme.cli import doctor, main
from minerva_acme.machine import threads

WITHOUT_LABMAZE = "pip install lxml pyparsing requests scipy tqdm && pip install --no-deps dm_control==1.0.50"


def works(code, **environment):
    return doctor.Probe("", 1.5)


def fails(code, **environment):
    return doctor.Probe("ImportError: libEGL.so.1 is missing", 1.5)


def test_an_old_python_is_wrong_and_a_newer_one_is_not():
    assert doctor.check_python((3, 10, 2)).status == "wrong"
    assert "python3.11 -m venv" in doctor.check_python((3, 10, 2)).fix
    assert doctor.check_python((3, 13, 0)).status == "ok"


@pytest.mark.parametrize(
    ("version", "is_newer"),
    [
        ("2.13.0", False),
        ("2.13.0+cpu", False),
        ("2.10.0+cu128", False),
        ("2.9.1", False),
        ("2.13.1", True),
        ("2.14.0+cpu", True),
        ("3.0.0.dev20270101", True),
    ],
)
def test_a_torch_that_is_newer_than_the_tested_one_is_warned_of(version, is_newer):
    check = doctor.check_torch(version, ["numpy>=1.26", "torch>=2.10", 'torch==2.13.0; extra == "tested"'])
    if is_newer:
        words = f"{version} is newer than 2.13.0, the newest version that was tested"
        assert check == ("torch", "warning", words, "pip install torch==2.13.0")
    else:
        assert check == ("torch", "ok", version, "")
    assert doctor.check_torch(version, ["torch>=2.10"]).status == "ok"


def test_the_tested_torch_is_found_in_the_packages_metadata(repository, tmp_path, monkeypatch):
    (tested,) = re.findall(r"^torch==([\d.]+)$", (repository / "tested.txt").read_text(), re.MULTILINE)
    monkeypatch.setattr(doctor, "probe", works)
    monkeypatch.setattr(doctor.torch, "__version__", "99.0.0")
    (check,) = (check for check in doctor.examine(tmp_path) if check.name == "torch")
    assert check.fix == f"pip install torch=={tested}"


# dm_control on a Python for which labmaze has no wheels.


BLOCKED = """
import importlib.abc, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "labmaze":
            raise ModuleNotFoundError("No module named 'labmaze'", name="labmaze")

sys.meta_path.insert(0, Blocked())
from minerva_acme import environments
for task in ("cartpole/swingup", "humanoid_CMU/run", "dog/walk", "stacker/stack_2"):
    environment = environments.make_training_environment(f"dm_control/{task}", seed=0)
    environment.reset()
    environment.step(environment.action_spec().generate_value())
from dm_control import composer, mjcf, viewer
from dm_control.locomotion import walkers
try:
    from dm_control.locomotion import arenas
except ModuleNotFoundError as error:
    print(error)
"""


def test_the_suite_works_without_labmaze_and_only_arenas_do_not(tmp_path):
    pytest.importorskip("dm_control")
    command = [sys.executable, "-W", "ignore", "-c", BLOCKED]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout.strip(), done.returncode) == ("No module named 'labmaze'", 0), done.stderr


def test_more_threads_than_cores_are_warned_of():
    check, *_ = doctor.check_threads({"OMP_NUM_THREADS": "64"}, num_cores=4)
    assert (check.status, check.fix) == ("warning", "export OMP_NUM_THREADS=4")
    check, *_ = doctor.check_threads({}, num_cores=4)
    assert (check.status, check.fix) == ("ok", "")


def test_it_is_said_how_products_are_computed(monkeypatch):
    monkeypatch.setattr(doctor.kernels, "uses_onednn", lambda: True)
    monkeypatch.setattr(doctor.cpu, "multiplies_bfloat16", lambda: True)
    assert (doctor.check_float32().words, doctor.check_bfloat16().words) == (
        "matrix products by oneDNN, because MKL is slow on this CPU",
        "supported by this CPU",
    )
    monkeypatch.setattr(doctor.kernels, "uses_onednn", lambda: False)
    monkeypatch.setattr(doctor.cpu, "multiplies_bfloat16", lambda: False)
    assert (doctor.check_float32().words, doctor.check_bfloat16().words) == (
        "matrix products by torch's default library",
        "not supported by this CPU: --target-precision bfloat16 uses float32",
    )


def test_reverb_that_is_missing_is_a_warning_and_one_that_does_not_load_is_wrong(monkeypatch):
    monkeypatch.setattr(doctor, "_version", {"dm-reverb": "0.14.0", "tensorflow": "2.15.1"}.get)
    assert doctor.check_reverb(works).words == "0.14.0 with TensorFlow 2.15.1, loaded in 1.5 s"
    broken = doctor.check_reverb(fails)
    assert broken.status == "wrong"
    assert "cannot be loaded: ImportError" in broken.words
    assert "--replay memory" in broken.fix
    monkeypatch.setattr(doctor, "_version", lambda package: None)
    missing = doctor.check_reverb(fails)
    assert missing.status == "warning"
    assert "replay is kept in this process's memory" in missing.words


def test_a_package_that_is_missing_or_does_not_work_is_wrong(monkeypatch):
    monkeypatch.setattr(doctor, "_version", {"gymnasium": "1.0"}.get)
    assert doctor.check_package("gymnasium", "", "pip", works) == ("gymnasium", "ok", "1.0", "")
    assert doctor.check_package("gymnasium", "", "pip", fails).status == "wrong"
    assert doctor.check_package("dm_control", "", "pip", works) == (
        "dm_control",
        "wrong",
        "not installed",
        "pip",
    )
    # From 3.13 on it cannot be installed by that command.
    assert doctor.check_package("dm_control", "", "pip", works, (3, 12)).status == "wrong"
    missing = doctor.check_package("dm_control", "", "pip", works, (3, 13))
    assert (missing.status, missing.fix) == ("warning", WITHOUT_LABMAZE)
    assert doctor.check_package("gymnasium", "", "pip", fails, (3, 13)).status == "wrong"


def test_without_a_renderer_training_works_and_the_command_is_told(monkeypatch):
    check = doctor.check_rendering(fails)
    assert (check.status, check.fix) == ("warning", "apt-get install libegl1 libgl1")
    monkeypatch.setenv("MUJOCO_GL", "egl")

    def only_osmesa(code, **environment):
        return works(code) if environment["MUJOCO_GL"] == "osmesa" else fails(code)

    check = doctor.check_rendering(only_osmesa)
    assert (check.status, check.fix) == ("warning", "export MUJOCO_GL=osmesa")
    assert "MUJOCO_GL is egl, which does not work; use osmesa instead" in check.words


@pytest.mark.parametrize(("free_gb", "status"), [(0.01, "wrong"), (1.0, "warning"), (50.0, "ok")])
def test_little_room_is_warned_of_and_none_is_wrong(tmp_path, monkeypatch, free_gb, status):
    class Usage:
        free = free_gb * 1e9

    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: Usage)
    check = doctor.check_disk(tmp_path / "runs" / "not" / "yet")
    assert (check.status, bool(check.fix)) == (status, status != "ok")


def test_a_place_that_is_no_folder_is_wrong(tmp_path):
    file = tmp_path / "runs"
    file.write_text("")
    check = doctor.check_disk(file / "mine")
    assert check.status == "wrong"
    assert f"{file} is not writable" in check.words


def test_little_shared_memory_is_warned_of(tmp_path, monkeypatch):
    class Usage:
        free = 1e6

    assert doctor.check_shared_memory(tmp_path / "none").status == "ok"
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: Usage)
    check = doctor.check_shared_memory(tmp_path)
    assert (check.status, check.fix) == ("warning", "in a container: docker run --shm-size=1g ...")


def test_a_free_port_is_found():
    assert doctor.check_port().status == "ok"


def test_a_probe_tells_the_last_line_of_what_went_wrong_and_does_not_wait_for_ever(monkeypatch):
    assert doctor.probe("import os, sys; sys.exit(os.environ['MINE'] != '1')", MINE="1").error == ""
    assert (
        doctor.probe("import no_such_module").error == "ModuleNotFoundError: No module named 'no_such_module'"
    )
    assert doctor.probe("import os; os._exit(3)").error == "exit status 3"
    monkeypatch.setattr(doctor, "_PROBE_SECONDS", 0.2)
    assert doctor.probe("import time; time.sleep(60)").error == "no answer within 0 s"


def test_every_extra_for_users_is_named_with_the_command_that_installs_it(repository, monkeypatch):
    setup = configparser.ConfigParser()
    setup.read(repository / "setup.cfg")
    extras = {*setup["options.extras_require"]} - {"tested", "docs", "dev"}
    assert {*doctor.EXTRAS} == extras
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda module: None if module == "ray" else 1)
    check = doctor.check_extras()
    assert check.words.endswith("; not installed: ray")
    assert check.fix == "if you want them: pip install 'minerva-acme[ray]'"
    monkeypatch.setattr(doctor.importlib.util, "find_spec", {}.get)
    assert doctor.check_extras((3, 11)).fix.endswith("; onnx and playground: with Python 3.12 or newer")
    assert "onnx" in doctor.check_extras((3, 12)).fix.partition("[")[2]
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda module: 1)
    assert doctor.check_extras() == ("extras", "ok", ", ".join(doctor.EXTRAS), "")


@pytest.mark.parametrize(("prober", "status"), [(works, 0), (fails, 1)])
def test_the_status_says_whether_training_works(tmp_path, monkeypatch, capsys, prober, status):
    monkeypatch.setattr(doctor, "probe", prober)
    assert main(["doctor", "--directory", str(tmp_path)]) == status
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["ok", "python", ".".join(map(str, sys.version_info[:3]))]
    assert [line.split()[1] for line in lines if "set by default" in line or "set by you" in line] == [
        setting.name for setting in threads.describe()
    ]
    assert lines[-1].startswith("Training works here." if status == 0 else "Training does not work here yet.")
    assert any(line.split()[:2] == ["wrong", "gymnasium"] for line in lines) == bool(status)


def test_no_check_leaves_anything_in_the_place_for_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "probe", works)
    assert len(list(doctor.examine(tmp_path / "runs"))) == 19
    assert list(pathlib.Path(tmp_path).iterdir()) == []
