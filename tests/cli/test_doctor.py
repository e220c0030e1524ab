import pathlib
import sys

import pytest

from minerva_acme import thread_settings
from minerva_acme.cli import doctor, main


def works(code, **environment):
    return doctor.Probe("", 1.5)


def fails(code, **environment):
    return doctor.Probe("ImportError: libEGL.so.1 is missing", 1.5)


def test_an_old_python_is_wrong_and_a_newer_one_is_not():
    assert doctor.check_python((3, 10, 2)).status == "wrong"
    assert "python3.11 -m venv" in doctor.check_python((3, 10, 2)).fix
    assert doctor.check_python((3, 13, 0)).status == "ok"


def test_more_threads_than_cores_are_warned_of():
    threads, *_ = doctor.check_threads({"OMP_NUM_THREADS": "64"}, num_cores=4)
    assert (threads.status, threads.fix) == ("warning", "export OMP_NUM_THREADS=4")
    threads, *_ = doctor.check_threads({}, num_cores=4)
    assert (threads.status, threads.fix) == ("ok", "")


def test_it_is_said_how_products_are_computed(monkeypatch):
    monkeypatch.setattr(doctor.kernels, "uses_onednn", lambda: True)
    monkeypatch.setattr(doctor.fused, "pays", lambda dtype: True)
    monkeypatch.setattr(doctor.cpu, "multiplies_bfloat16", lambda: True)
    assert (doctor.check_float32().words, doctor.check_bfloat16().words) == (
        "matrix products by oneDNN, because MKL is slow on this CPU, fused with activations",
        "supported by this CPU, fused with activations",
    )
    monkeypatch.setattr(doctor.kernels, "uses_onednn", lambda: False)
    monkeypatch.setattr(doctor.fused, "pays", lambda dtype: False)
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
    # From 3.13 on it cannot be installed by that command, and Gymnasium's environments remain.
    assert doctor.check_package("dm_control", "", "pip", works, (3, 12)).status == "wrong"
    missing = doctor.check_package("dm_control", "", "pip", works, (3, 13))
    assert (missing.status, missing.fix) == ("warning", "dm_control needs Python 3.11 or 3.12")
    assert doctor.check_package("gymnasium", "", "pip", fails, (3, 13)).status == "wrong"


def test_without_a_renderer_training_works_and_the_command_is_told(monkeypatch):
    check = doctor.check_rendering(fails)
    assert (check.status, check.fix) == ("warning", "apt-get install libegl1 libosmesa6")
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


@pytest.mark.parametrize(("prober", "status"), [(works, 0), (fails, 1)])
def test_the_status_says_whether_training_works(tmp_path, monkeypatch, capsys, prober, status):
    monkeypatch.setattr(doctor, "probe", prober)
    assert main(["doctor", "--directory", str(tmp_path)]) == status
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["ok", "python", ".".join(map(str, sys.version_info[:3]))]
    assert [line.split()[1] for line in lines if "set by default" in line or "set by you" in line] == [
        setting.name for setting in thread_settings.describe()
    ]
    assert lines[-1].startswith("Training works here." if status == 0 else "Training does not work here yet.")
    assert [line for line in lines if line.startswith("wrong") and "gymnasium" in line] == [
        line for line in lines if status and "gymnasium" in line and "pip" not in line
    ]


def test_no_check_leaves_anything_in_the_place_for_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "probe", works)
    assert len(list(doctor.examine(tmp_path / "runs"))) == 19
    assert list(pathlib.Path(tmp_path).iterdir()) == []
