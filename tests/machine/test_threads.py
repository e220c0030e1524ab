"""Thread settings are made before torch loads, and the user's own stay."""

import json
import os
import subprocess
import sys

import pytest

from minerva_acme.machine import threads

VARIABLES = ("OMP_WAIT_POLICY", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
TELL = "import json; print(json.dumps([threads.describe(), {num_torch_threads}]))"


def in_a_new_process(
    first: str, num_torch_threads: str = "None", **environment: str
) -> tuple[dict[str, threads.Setting], int]:
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    tell = TELL.format(num_torch_threads=num_torch_threads)
    done = subprocess.run(
        [sys.executable, "-c", f"{first}; from minerva_acme.machine import threads; {tell}"],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    settings, num_torch_threads = json.loads(done.stdout)
    return {setting[0]: threads.Setting(*setting) for setting in settings}, num_torch_threads


def test_defaults_are_set_before_torch_is_imported():
    settings, num_torch_threads = in_a_new_process(
        "import minerva_acme", num_torch_threads="__import__('torch').get_num_threads()"
    )
    assert tuple(settings) == VARIABLES
    expected = min(threads.num_cores(), 8)
    assert settings["OMP_NUM_THREADS"] == ("OMP_NUM_THREADS", str(expected), True, False)
    assert settings["OMP_WAIT_POLICY"] == ("OMP_WAIT_POLICY", "PASSIVE", True, False)
    assert settings["OPENBLAS_NUM_THREADS"] == ("OPENBLAS_NUM_THREADS", "1", True, False)
    assert num_torch_threads == expected


def test_the_users_values_stay():
    settings, _ = in_a_new_process("import minerva_acme", OMP_NUM_THREADS="3", OMP_WAIT_POLICY="ACTIVE")
    assert settings["OMP_NUM_THREADS"] == ("OMP_NUM_THREADS", "3", False, False)
    assert settings["OMP_WAIT_POLICY"] == ("OMP_WAIT_POLICY", "ACTIVE", False, False)
    assert settings["OPENBLAS_NUM_THREADS"].is_default


def test_a_setting_that_came_too_late_says_so():
    loaded = "import sys, types; sys.modules |= {'torch': types, 'numpy': types}"
    settings, _ = in_a_new_process(loaded)
    assert all(setting.is_default and setting.is_late for setting in settings.values())


@pytest.mark.parametrize("name", VARIABLES)
def test_what_is_no_longer_set_is_told(monkeypatch, name):
    monkeypatch.delenv(name, raising=False)
    (setting,) = [setting for setting in threads.describe() if setting.name == name]
    assert setting.value == "unset"
