"""How a command ends that cannot do what it was asked for."""

import collections
import importlib
import linecache
import signal
import subprocess
import sys
import time
import traceback

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from minerva_acme import distributed, environments, replay, specs
from minerva_acme.cli import training
from minerva_acme.wrappers import spec_check

cli = importlib.import_module("minerva_acme.cli.main")  # the package's `main` is its function

# `raise` stands in the code of the module that the test names.
RAISE = "def fail(command):\n    raise error\n"
# The interpreter finds this wrong in that module's code.
UNPACK = "def fail(command):\n    first, second, third = 1, 2\n"
# The standard library finds it out.
OPEN = "import pathlib\ndef fail(command):\n    pathlib.Path('/nowhere/at/all').read_text()\n"
MISSING = "No such file or directory"
NOWHERE = (
    f"/nowhere/at/all cannot be used: {MISSING}. Choose another path, or check its permissions and those of "
    "the folders above it."
)
IMPORT = "import importlib\ndef fail(command):\n    importlib.import_module('no_such_package')\n"


class Faulty(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, fault):
        self._fault = fault

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._num_steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self._num_steps += 1
        result = np.zeros(3, np.float32), 1.0, False, self._num_steps == 10, {}
        return self._fault(result) if self._num_steps == 5 else result


@pytest.fixture
def play(tmp_path, call):
    """Trains where the fifth step has a fault: `play(fault)` gives status, output and errors."""

    def play_(fault, *flags):
        command = (
            "train ppo --env Faulty-v0 --num-env-steps 40 --rollout-steps 10 --minibatch-size 5 --log csv"
        )
        command += " --replay memory --num-environments 2 --evaluation-episodes 1 --policy-layer-sizes 4"
        gymnasium.register("Faulty-v0", Faulty, kwargs={"fault": fault})
        try:
            return call(*command.split(), "--directory", tmp_path / "run", *flags)
        finally:
            del gymnasium.registry["Faulty-v0"]

    return play_


def function_of(module, source, error):
    """The function `fail` of a module with this source, which is found as that of a file is."""
    namespace, file = {"__name__": module, "error": error}, f"<{module} with {error!r}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    exec(compile(source, file, "exec"), namespace)
    return namespace["fail"]


@pytest.mark.parametrize(
    ("source", "error", "status", "message"),
    [
        (RAISE, ValueError("`seed` must be >= 0, got -1."), 2, "`seed` must be >= 0, got -1."),
        (RAISE, type("Refused", (ValueError,), {})("`seed` is 3."), 2, "`seed` is 3."),
        (RAISE, OSError(28, "No space left on device"), 1, "[Errno 28] No space left on device"),
        (RAISE, ImportError("'Ant-v5' needs 'mujoco'"), 1, "'Ant-v5' needs 'mujoco'"),
        (RAISE, FloatingPointError("Training has diverged"), 1, "Training has diverged"),
        (RAISE, replay.ReplayError("The server is gone"), 1, "The server is gone"),
        (RAISE, specs.SpecError("`reward` is None"), 1, "`reward` is None"),
        (RAISE, environments.EnvironmentWorkerError("A process ended"), 1, "A process ended"),
        (RAISE, distributed.ProgramFailed("The run could not be saved"), 1, "The run could not be saved"),
        (RAISE, KeyboardInterrupt(), 130, "stopped"),
        (OPEN, None, 1, NOWHERE),
        (
            RAISE,
            PermissionError(13, "Permission denied", "/nowhere/at/all"),
            1,
            NOWHERE.replace(MISSING, "Permission denied"),
        ),
        (
            RAISE,
            OSError(30, "Read-only file system", "/nowhere/at/all"),
            1,
            NOWHERE.replace(MISSING, "Read-only file system"),
        ),
        (IMPORT, None, 1, "No module named 'no_such_package'"),
    ],
)
@pytest.mark.promise("The library's own errors are one line")
def test_what_fails_ends_with_its_words_and_its_status(monkeypatch, call, source, error, status, message):
    monkeypatch.setattr(cli, "_run", function_of("minerva_acme.some.module", source, error))
    assert call("doctor") == (status, "", f"minerva: {message}")


@pytest.mark.parametrize(
    ("module", "source", "error"),
    [
        ("somebodys_environment", RAISE, ValueError("not enough values to unpack")),
        ("torch.nn.functional", RAISE, ValueError("a size must match")),
        ("somebodys_environment", OPEN, FileNotFoundError()),
        ("somebodys_environment", IMPORT, ModuleNotFoundError()),
        ("somebodys_environment", RAISE, FloatingPointError("overflow")),
        ("minerva_acme.some.module", UNPACK, ValueError()),  # a fault of ours is no mistake of the caller's
        ("minerva_acme.some.module", RAISE, TypeError("no error that explains itself")),
    ],
)
@pytest.mark.parametrize("flags", [(), ("--debug",)])
def test_an_error_that_is_no_refusal_keeps_its_traceback(monkeypatch, call, module, source, error, flags):
    monkeypatch.setattr(cli, "_run", function_of(module, source, error))
    with pytest.raises(type(error)) as raised:
        call("doctor", *flags)
    assert "fail" in [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]


def test_an_error_through_context_managers_is_still_told_by_its_raise(monkeypatch, call):
    source = """
import contextlib
def fail(command):
    try:
        with contextlib.ExitStack() as stack:
            stack.callback(print, end="")
            try:
                raise error
            except OSError:
                pass
    finally:
        len(())
"""
    monkeypatch.setattr(cli, "_run", function_of("minerva_acme.a", source, ValueError("seen through")))
    assert call("doctor")[::2] == (2, "minerva: seen through")


@pytest.mark.parametrize(
    "arguments", ["--debug eval nowhere", "eval --debug nowhere", "eval nowhere --debug"]
)
def test_debug_shows_the_traceback_of_a_refusal_too_wherever_it_stands(
    tmp_path, monkeypatch, call, arguments
):
    monkeypatch.chdir(tmp_path)
    status, _, err = call(*arguments.split())
    assert status == 2
    assert "Traceback (most recent call last):" in err and "in read" in err
    assert err.endswith(
        "minerva: There is no run in nowhere: run.json is missing. Give the folder of a trained run."
    )
    assert "Traceback" not in call("eval", "nowhere")[2]


def test_help_tells_of_debug(call):
    assert "--debug" in call("--help")[1]


def misses_a_value(result):
    first, second, third = result[3:]
    return first, second, third


def test_a_value_error_of_an_environment_ends_with_its_traceback_and_its_place(play):
    with pytest.raises(ValueError, match="not enough values to unpack") as raised:
        play(misses_a_value)
    innermost = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert (innermost.filename, innermost.name) == (__file__, "misses_a_value")
    assert raised.value.__notes__ == ["Raised by Faulty-v0, in the call after step 4 of episode 1."]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            lambda result: (np.zeros(4, np.float32), *result[1:]),
            "Faulty-v0, step 5 of episode 1: `observation` must be float32 of shape (3,), got float32 "
            "of shape (4,). Make it agree with its spec.",
        ),
        (
            lambda result: (np.float32([0, np.nan, 0]), *result[1:]),
            "Faulty-v0, step 5 of episode 1: `observation` must be finite, got nan at index (1,). ",
        ),
        (
            lambda result: (result[0], np.inf, *result[2:]),
            "Faulty-v0, step 5 of episode 1: `reward` must be finite, got inf. Look for",
        ),
        (
            lambda result: (result[0], 1e30, *result[2:]),
            "Faulty-v0, step 5 of episode 1: `reward` must be within ±1e+15, got 1e+30. "
            "Clip it or scale it down in a wrapper of the environment.",
        ),
        (
            lambda result: (result[0], None, *result[2:]),
            "Faulty-v0, step 5 of episode 1: `reward` is None at a MID timestep. Only FIRST has none.",
        ),
        (
            lambda result: result[1:],
            "must return (observation, reward, terminated, truncated, info), got 4 values. Gym "
            "returned (observation, reward, done, info) before 0.26: it or a wrapper around it was written "
            "for that. Port it, or convert it to Gymnasium with shimmy's GymV21Environment-v0. "
            "Raised by Faulty-v0, in the call after step 4 of episode 1.",
        ),
    ],
    ids=["shape", "nan", "infinite", "huge", "none", "four"],
)
def test_what_an_environment_gives_wrong_is_told_by_its_place_and_is_a_failure(play, fault, message):
    status, _, err = play(fault)
    assert status == 1
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            lambda result: (np.float32([0, 1.5, 0]), *result[1:]),
            "`observation` must be BoundedArray(3,) float32 in [-1, 1], got 1.5.",
        ),
        (lambda result: (result[0], 9e14, *result[2:]), "`reward` reaches 9e+14."),
    ],
)
def test_what_can_be_lived_with_is_warned_of_and_training_goes_on(play, caplog, monkeypatch, fault, message):
    monkeypatch.setattr(spec_check, "_seen", collections.Counter())
    status, _, _ = play(fault)
    assert status == 0
    told = [r.getMessage() for r in caplog.records if r.name == "minerva_acme.wrappers.spec_check"]
    assert told[0].startswith("Faulty-v0, step 5 of episode 1: " + message)


def test_a_signal_after_the_work_is_done_does_not_change_the_exit_status():
    code = (
        "import os, signal, sys; from minerva_acme.cli import main; status = main();"
        "[os.kill(os.getpid(), n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]; sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "list", "agents"], capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_each_signal_ends_a_command_with_130_and_one_line(monkeypatch, call, number):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which shells may ignore
    monkeypatch.setattr(cli, "_run", lambda command: (signal.raise_signal(number), time.sleep(10.0)))
    try:
        assert call("doctor") == (130, "", "minerva: stopped")
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_while_the_result_is_shown_says_that_the_run_is_saved(monkeypatch, call, tmp_path):
    monkeypatch.setattr(training.experiments, "run_experiment", lambda config, progress: None)
    monkeypatch.setattr(training, "_show", lambda *_: signal.raise_signal(signal.SIGTERM))
    words = f"train ppo --env CartPole-v1 --num-env-steps 10 --directory {tmp_path / 'run'}"
    status, _, said = call(*words.split())
    assert (status, said) == (130, f"minerva: stopped after the run was saved in {tmp_path / 'run'}")
