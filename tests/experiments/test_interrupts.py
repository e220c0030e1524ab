"""Runs in processes of their own that wait, hang and get signals."""

import contextlib
import os
import pathlib
import queue
import signal
import subprocess
import textwrap
import threading
import time

import pytest

from minerva_acme import experiments
from minerva_acme.agents import mpo
from minerva_acme.environments import process_vector
from minerva_acme.experiments import interrupts, signals
from minerva_acme.replay import backends, waiting
from minerva_acme.replay import base as replay
from minerva_acme.runs import checkpointing, run_lock
from tests.experiments.test_run import SMALL, make_config, make_pendulum

# What is answered at once, on a machine that is busy with other work; what hangs here does so for 600 s.
SOON = 60.0
STILL = 0.3  # in which nothing happens in a wait that will not end


def be_hasty():
    """In this process, what takes 3 s takes a tenth of it."""
    interrupts.SAME_REQUEST_SECONDS = 0.2
    signals._DEAF_SECONDS = 0.3
    signals._POLL_SECONDS = 0.05
    process_vector.GRACE_SECONDS = 1.0


AFTER_THE_FIRST = 0.5  # seconds after which a signal is another request
LONGER = 1.0  # than it takes to find a process deaf
STORES = ["memory", pytest.param("reverb", marks=pytest.mark.reverb)]


class HastyBuilder(mpo.MPOBuilder):
    """Asks for a learner step before the table has what it needs."""

    def learner_steps_due(self, num_inserted):
        return int(num_inserted > 10)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.promise("A wait that only the waiting thread could end raises `ReplayDeadlock`")
def test_a_learner_that_waits_for_what_nobody_writes_is_an_error_at_once(tmp_path, store, monkeypatch):
    monkeypatch.setattr(waiting, "SLICE_SECONDS", 0.05)
    monkeypatch.setattr(waiting, "_STILL_SECONDS", STILL)
    with pytest.raises(replay.ReplayDeadlock, match="Waiting for 20 items in table 'replay', has 11.*due"):
        experiments.run_experiment(make_config(tmp_path, 100, replay=store, builder=HastyBuilder(SMALL)))


@pytest.mark.parametrize("store", STORES)
@pytest.mark.promise("A run whose replay comes back with fewer items")
def test_a_run_whose_replay_comes_back_empty_says_so_and_does_not_wait(tmp_path, store, monkeypatch):
    experiments.run_experiment(make_config(tmp_path, 40, replay=store))
    # As Reverb does, without a word, where files of a checkpoint are missing.
    make = backends.make_server
    monkeypatch.setattr(
        backends,
        "make_server",
        lambda *arguments, **options: make(*arguments, **{**options, "restore_from": None}),
    )
    message = "was restored with 0 items, but held 40 when the checkpoint"
    with pytest.raises(replay.ReplayError, match=message):
        experiments.run_experiment(make_config(tmp_path, 60, replay=store))


class Process:
    """A script in a process group of its own, whose lines can be waited for."""

    def __init__(self, nursery, script, *arguments):
        haste = f"from {__name__} import be_hasty\nbe_hasty()\n"
        self._process = nursery.start(haste + textwrap.dedent(script), *map(str, arguments))
        self._lines = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.seen = []

    def _read(self):
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("(the process has ended)")

    def wait_for(self, words, seconds=200.0):
        """Returns the next line with these words in it."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                pytest.fail(f"Not said within {seconds:g} s: {words!r}. Said: {''.join(self.seen)}")
            self.seen.append(line)
            if words in line:
                return line
            assert line != "(the process has ended)", f"Never said: {words!r}. Said: {''.join(self.seen)}"

    def signal(self, number=signal.SIGINT):
        """As a terminal does: to the whole group."""
        os.killpg(self._process.pid, number)

    def wait(self, seconds):
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGABRT)  # of which it says where its threads are
            pytest.fail(f"It has not ended within {seconds:g} s: {self.rest()}")

    def rest(self):
        self._reader.join(10.0)
        while not self._lines.empty():
            self.seen.append(self._lines.get())
        return "".join(self.seen)

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(10.0)
        self._process.stdout.close()


@pytest.fixture
def start(nursery):
    """Starts processes, which are killed with the test."""
    with contextlib.ExitStack() as processes:
        yield lambda *arguments: processes.enter_context(contextlib.closing(Process(nursery, *arguments)))


ENDLESS = """
    import pathlib, signal, sys
    # A shell that runs the tests in the background has Ctrl-C ignored, which children inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from minerva_acme import experiments
    from tests.experiments.test_run import SMALL, make_config

    def on_progress(progress):
        if progress.phase == "train" and progress.env_steps == 50:
            print("READY")

    config = make_config(pathlib.Path(sys.argv[1]), 10**9, SMALL)
    result = experiments.run_experiment(config, on_progress)
    print("ENDED", result.interrupted_by, result.env_steps, result.learner_steps)
"""


def test_a_signal_saves_and_ends_with_success(tmp_path, start):
    process = start(ENDLESS, tmp_path)
    process.wait_for("READY")
    process.signal(signal.SIGTERM)
    _, name, env_steps, learner_steps = process.wait_for("ENDED").split()
    assert process.wait(SOON) == 0
    assert name == "SIGTERM"
    # The transitions of the episode that was cut are kept, each as the start of one sequence.
    checkpoint = checkpointing.Checkpointer(tmp_path / "checkpoints").latest()
    assert checkpointing.env_steps(checkpoint) == int(env_steps) >= 50
    assert checkpointing.load_state(checkpoint)["inserted"] == int(env_steps)

    result = experiments.run_experiment(make_config(tmp_path, int(env_steps) + 20))
    assert result.env_steps == int(env_steps) + 20
    assert result.learner_steps > int(learner_steps)


WAITING = """
    import pathlib, signal, sys
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from minerva_acme import experiments
    from minerva_acme.replay import waiting
    from tests.experiments.test_interrupts import HastyBuilder
    from tests.experiments.test_run import make_config, SMALL

    waiting._STILL_SECONDS = 600.0  # a wait that does not end by itself
    waiting._REPORT_SECONDS = 0.1
    directory, store = sys.argv[1:]
    config = make_config(pathlib.Path(directory), 100, replay=store, builder=HastyBuilder(SMALL))
    result = experiments.run_experiment(config)
    print(result.interrupted_by, result.env_steps, result.learner_steps)
"""


@pytest.mark.parametrize("store", STORES)
def test_ctrl_c_ends_a_learners_wait_with_a_save(tmp_path, start, store):
    process = start(WAITING, tmp_path, store)
    process.wait_for("Waiting for 20 items in table 'replay', has 11.")
    process.signal()
    process.wait_for("SIGINT: stopping after this step, then saving; press Ctrl-C again to end now.")
    process.wait_for("SIGINT 15 0", seconds=SOON)
    assert process.wait(SOON) == 0
    assert checkpointing.Checkpointer(tmp_path / "checkpoints").latest().name.endswith("15")


HANGING = """
    import ctypes, pathlib, signal, sys, time
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from minerva_acme import environments, experiments
    from tests.experiments.test_run import NEVER_LEARNS, make_config, make_pendulum

    directory, how = sys.argv[1:]

    def hang():
        print("HANGING")
        if how == "python":
            time.sleep(600.0)
        elif how == "slow":
            while not pathlib.Path(directory, "go").exists():
                time.sleep(0.02)
        else:
            # In C, which does not hear of signals: a lock that is taken twice.
            mutex = ctypes.create_string_buffer(64)
            for _ in range(2):
                ctypes.CDLL(None).pthread_mutex_lock(mutex)

    def make(seed):
        environment = make_pendulum(seed)
        step, made = environment.step, [0]

        def hanging_step(action):
            made[0] += 1
            if made[0] == 50:
                hang()
            return step(action)

        environment.step = hanging_step
        return environment

    def run():
        config = make_config(
            pathlib.Path(directory), 60, NEVER_LEARNS, environment_factory=make, checkpoint_period=40,
            replay="memory",
        )
        result = experiments.run_experiment(config)
        print(result.interrupted_by, result.env_steps)

    if __name__ == "__main__":
        run()
"""


SLOW = """
    import pathlib, signal, sys, time
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from minerva_acme import experiments
    from minerva_acme.runs import checkpointing
    from tests.experiments.test_interrupts import LONGER
    from tests.experiments.test_run import NEVER_LEARNS, make_config, make_pendulum

    directory, store, what = sys.argv[1:]

    def slowly(function, steps):
        calls = [0]
        def call(*words, **options):
            calls[0] += 1
            if calls[0] == steps:
                print("SLOW")
                time.sleep(LONGER)
            return function(*words, **options)
        return call

    def make(seed):
        environment = make_pendulum(seed)
        environment.step = slowly(environment.step, 50 if what == "step" else 0)
        return environment

    checkpointing.Checkpointer.save = slowly(checkpointing.Checkpointer.save, 1)
    result = experiments.run_experiment(
        make_config(pathlib.Path(directory), 60, NEVER_LEARNS, replay=store, environment_factory=make)
    )
    print(result.interrupted_by, result.env_steps)
"""


@pytest.mark.parametrize(
    ("store", "what", "number", "end"),
    [
        ("memory", "step", signal.SIGTERM, "SIGTERM 50"),
        # All steps were made before it, so that nothing was cut short.
        pytest.param("reverb", "save", signal.SIGHUP, "None 60", marks=pytest.mark.reverb),
    ],
)
@pytest.mark.promise("After one Ctrl-C, SIGTERM or SIGHUP, a run finishes")
def test_a_step_and_a_save_may_take_as_long_as_they_need_after_one_signal(
    tmp_path, start, store, what, number, end
):
    process = start(SLOW, tmp_path, store, what)
    process.wait_for("SLOW")
    process.signal(number)
    process.wait_for(f"{number.name}: stopping after this step, then saving", seconds=SOON)
    process.wait_for(end)
    assert process.wait(SOON) == 0
    assert checkpointing.find_to_resume(tmp_path).name.endswith(end.split()[1])


def test_a_signal_while_a_run_is_closed_is_answered_and_changes_nothing(tmp_path, caplog):
    def make(seed):
        environment = make_pendulum(seed)
        close = environment.close
        made.append(environment)

        def close_at_a_signal():
            if environment is made[0]:  # the others are evaluated in
                signal.raise_signal(signal.SIGTERM)
            close()

        environment.close = close_at_a_signal
        return environment

    made = []

    result = experiments.run_experiment(make_config(tmp_path, 50, replay="memory", environment_factory=make))
    assert (result.interrupted_by, result.env_steps) == (None, 50) and result.after is not None
    (said,) = [message for message in caplog.messages if message.startswith("SIGTERM")]
    assert said.startswith("SIGTERM: closing the run;")
    assert said.endswith(f"Last checkpoint: step 50 in {tmp_path / 'checkpoints'}.")


def test_a_signal_in_the_last_save_does_not_make_a_whole_run_an_interrupted_one(tmp_path, monkeypatch):
    save = checkpointing.Checkpointer.save
    monkeypatch.setattr(
        checkpointing.Checkpointer,
        "save",
        lambda *words, **options: (signal.raise_signal(signal.SIGINT), save(*words, **options)),
    )
    result = experiments.run_experiment(make_config(tmp_path, 50, replay="memory"))
    assert result.interrupted_by is None and result.after is not None


def test_a_signal_within_a_step_is_said_at_once_and_the_run_saved_after_the_step(tmp_path, start):
    process = start(HANGING, tmp_path, "slow")
    process.wait_for("HANGING")
    process.signal()
    line = process.wait_for("stopping after this step, then saving", seconds=SOON)
    (tmp_path / "go").touch()
    assert f"Last checkpoint: step 40 in {tmp_path / 'checkpoints'}." in line
    process.wait_for("SIGINT 50")
    assert process.wait(SOON) == 0


@pytest.mark.parametrize(("how", "status"), [("python", -signal.SIGINT), ("c", 130)])
@pytest.mark.promise("A second Ctrl-C ends the run within 3 seconds with status 130")
def test_the_second_signal_ends_a_step_that_hangs_and_names_the_last_checkpoint(tmp_path, start, how, status):
    process = start(HANGING, tmp_path, how)
    process.wait_for("HANGING")
    process.signal()
    process.wait_for("press Ctrl-C again to end now", seconds=SOON)
    time.sleep(AFTER_THE_FIRST)
    process.signal()
    process.wait_for(f"stopped without saving; last checkpoint: step 40 in {tmp_path}", seconds=SOON)
    assert process.wait(SOON) == status
    # What was saved can be resumed from.
    assert checkpointing.Checkpointer(tmp_path / "checkpoints").latest().name.endswith("40")


COMMAND = """
    import signal, sys, time
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from gymnasium.envs.classic_control import pendulum
    from minerva_acme.cli import main

    def step(self, action):
        print("HANGING")
        time.sleep(600.0)

    pendulum.PendulumEnv.step = step
    options = "--env Pendulum-v1 --num-env-steps 100 --replay memory --directory"
    sys.exit(main(["train", "mpo", *options.split(), sys.argv[1]]))
"""


def test_the_command_ends_with_130_and_one_line_after_the_second_signal(tmp_path, start):
    process = start(COMMAND, tmp_path / "run")
    process.wait_for("HANGING")
    process.signal()
    process.wait_for("press Ctrl-C again to end now")
    time.sleep(AFTER_THE_FIRST)
    process.signal()
    process.wait_for("minerva: stopped without saving; last checkpoint: none yet", seconds=SOON)
    assert process.wait(SOON) == 130
    assert "Traceback" not in process.rest()


MAKING = """
    import os, signal, sys, time
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from minerva_acme.agents import ppo
    from minerva_acme.cli import main

    def make_learner(self, parts):
        os.write(1, b"MAKING\\n")
        time.sleep(600.0)

    ppo.PPOBuilder.make_learner = make_learner
    if __name__ == "__main__":
        options = "--env CartPole-v1 --num-env-steps 1000 --num-environments 2 --environment-processes"
        sys.argv = ["minerva", "train", "ppo", *options.split(), "--directory", sys.argv[1]]
        sys.exit(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_the_parts_are_made_ends_the_command_as_ctrl_c_does(tmp_path, start, number):
    process = start(MAKING, tmp_path / "run")
    process.wait_for("MAKING")
    assert len(group(process._process.pid)) >= 3
    process.signal(number)
    process.wait_for("minerva: stopped", seconds=SOON)
    assert process.wait(SOON) == 130
    assert "Traceback" not in process.rest()
    wait_for_end(process)
    with run_lock.hold(tmp_path / "run"):
        pass


IN_PROCESSES = """
    import pathlib, signal, sys, time
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from tests.experiments import hanging_environments
    hanging_environments.run(pathlib.Path(sys.argv[1]))
"""


def group(leader):
    """The processes of a session, without those that have ended."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
            if int(session) == leader and state != "Z":
                found.append(int(path.parent.name))
    return found


def wait_for_end(process):
    deadline = time.monotonic() + SOON
    while group(process._process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not group(process._process.pid)


@pytest.mark.parametrize(("number", "num_signals"), [(signal.SIGTERM, 1), (signal.SIGINT, 2)])
@pytest.mark.promise("A signal to the process group saves a run with `environment_processes`")
def test_a_signal_while_workers_are_in_a_step_saves_the_run(tmp_path, start, number, num_signals):
    process = start(IN_PROCESSES, tmp_path)
    process.wait_for("HANGING")
    process.wait_for("HANGING")
    assert len(group(process._process.pid)) >= 3
    process.signal(number)
    process.wait_for("stopping after this step", seconds=SOON)
    if num_signals == 2:
        time.sleep(AFTER_THE_FIRST)
        process.signal(number)
        process.wait_for("stopped without saving; last checkpoint", seconds=SOON)
    else:
        (tmp_path / "go").touch()
        process.wait_for(f"{number.name}\n")
    status = process.wait(SOON)
    assert status == (0 if num_signals == 1 else -signal.SIGINT)
    assert "Error" not in process.rest()
    wait_for_end(process)
