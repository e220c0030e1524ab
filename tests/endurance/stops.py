"""Trainings that are stopped by a signal while they take long, again and again, and must lose nothing.

`python -m tests.endurance stops`; as a program of its own, the distributed run that is stopped:
`python -m tests.endurance.stops FOLDER NUM_ENV_STEPS SLOW`.
"""

import dataclasses
import functools
import logging
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from minerva_acme import builders, core, distributed
from minerva_acme.agents import sac
from minerva_acme.runs import checkpointing
from tests.distributed import small

from . import storm, training

RAY = "sac/ray"
TRAININGS = ("mpo/memory", "mpo/reverb", RAY)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SLOW = ("step", "save", "stop")
_SECONDS = 1.0, 10.0  # that it takes
_STEPS = 150  # of a process at most, before it is slow
_MAX_SECONDS = 600.0
_POLL_SECONDS = 0.02


class Stop(NamedTuple):
    """What became of one stop."""

    name: str  # of the signal
    slow: training.Slow
    seconds: float  # from the signal to the end of the process
    made_steps: int
    kept_steps: int  # those of the newest checkpoint


class Result(NamedTuple):
    """What became of a training."""

    name: str
    stops: list[Stop]
    faults: list[str]


def run(name: str, folder: pathlib.Path, *, num_signals: int, seed: int) -> Result:
    """Stops a training again and again. Each time it must end well, saved at the last step that it made.

    Args:
        name: "agent/store" or `RAY`.
        folder: a new one.
        num_signals: how many processes are stopped.
        seed: of signals, moments and times.
    """
    folder.mkdir(parents=True)
    random_, result = random.Random(f"{name} {seed}"), Result(name, [], [])
    agent, store = name.split("/")
    in_process = None if name == RAY else storm.Training(agent, store, folder, 10**9)
    saved = storm.counts(None)
    for index in range(num_signals):
        flag = folder / "slow"
        flag.unlink(missing_ok=True)
        number = SIGNALS[index % len(SIGNALS)]
        slow = training.Slow(
            _SLOW[index // len(SIGNALS) % len(_SLOW)],
            random_.uniform(*_SECONDS),
            random_.randint(1, _STEPS),
            flag,
        )
        sender = _Sender(number, slow, part=random_.random(), has_echo=random_.random() < 0.5)
        if in_process is None:
            status, made, faults = _stop_distributed(folder, slow, sender)
        else:
            attempt = in_process.attempt(sender, slow)
            status, made = attempt.status, max([0, *(report.env_steps for report in attempt.reports)])
            faults = storm.check_resumed(saved, attempt)
        seconds = time.monotonic() - sender.sent_at
        newest = checkpointing.latest(folder / "run" / "checkpoints")
        before, saved = saved["actor_steps"], storm.counts(newest)
        kept = saved["actor_steps"]
        result.stops.append(Stop(number.name, slow, seconds, made, kept))
        print(f"{name}: {result.stops[-1]}", flush=True)
        if status != 0:
            faults.append(f"it ended with {status}")
        if kept != made or kept <= before:
            faults.append(f"the newest checkpoint is of step {kept}, {made} were made, {before} before")
        if newest is None or checkpointing.find_to_resume(folder / "run") != newest:
            faults.append("the newest checkpoint is not whole")
        result.faults.extend(f"{name}, after stop {index + 1} ({number.name}): {fault}" for fault in faults)
    return result


class _Sender:
    """A `storm.Moment`: sends the signal while the process is slow, and waits until it has ended."""

    def __init__(self, number: signal.Signals, slow: training.Slow, *, part: float, has_echo: bool) -> None:
        self.sent_at = float("nan")
        self._number = number
        self._slow = slow
        self._part = part
        self._has_echo = has_echo  # as where a supervisor signals a process and its group

    def __call__(self, running: Iterator[Any]) -> None:
        next(_ for _ in running if self._slow.flag.exists())
        process = int(self._slow.flag.read_text())
        time.sleep(0.9 * self._part * self._slow.seconds)
        self.sent_at = time.monotonic()
        os.kill(process, self._number)
        if self._has_echo:
            time.sleep(0.1 * self._part)
            os.kill(process, self._number)
        for _ in running:
            pass


def _stop_distributed(
    folder: pathlib.Path, slow: training.Slow, sender: _Sender
) -> tuple[int, int, list[str]]:
    """Runs the distributed training until it is stopped; returns its status, its steps and its faults."""
    command = [sys.executable, "-m", "tests.endurance.stops", str(folder), slow.what]
    command += [str(slow.seconds), str(slow.step)]
    with open(folder / "output.txt", "ab") as output:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output, text=True)

    def running() -> Iterator[None]:
        deadline = time.monotonic() + _MAX_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            yield
            time.sleep(_POLL_SECONDS)

    try:
        sender(running())
    except StopIteration:
        pass  # it has ended before
    finally:
        process.kill()
        said, _ = process.communicate()
    words = said.split()
    if words[:1] != ["ended"]:
        return process.returncode, 0, [f"it said {said!r}"]
    return process.returncode, int(words[1]), []


class _SlowBuilder(sac.SACBuilder):
    """SAC, whose learner takes long to be saved."""

    def __init__(self, config: sac.SACConfig, slow: training.Slow) -> None:
        super().__init__(config)
        self._slow = slow

    def make_learner(self, parts: builders.LearnerParts[sac.SACNetworks]) -> core.Learner:
        learner, slow, saves = super().make_learner(parts), self._slow, []

        def save_slowly(save: Callable[[], core.State]) -> core.State:
            if slow.what == "stop" or (slow.what == "save" and not saves):
                saves.append(slow)
                if slow.what == "save":
                    slow.begin()
                time.sleep(slow.seconds)
            return save()

        learner.save = functools.partial(save_slowly, learner.save)  # type: ignore[method-assign]
        return learner


def table(results: Sequence[Result]) -> str:
    """The figures as a Markdown table."""
    lines = [
        "| training | signals | SIGINT, SIGTERM, SIGHUP | in a step, in a save, before a save | seconds that "
        "was slow: median | most | seconds to stop: median | most | steps lost | result |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, stops, faults in results:
        kinds = [sum(stop.name == number.name for stop in stops) for number in SIGNALS]
        slow = [sum(stop.slow.what == what for stop in stops) for what in _SLOW]
        took = [stop.slow.seconds for stop in stops]
        seconds = [stop.seconds for stop in stops]
        lines.append(
            f"| {name} | {len(stops)} | {', '.join(map(str, kinds))} | {', '.join(map(str, slow))} "
            f"| {statistics.median(took):.1f} | {max(took):.1f} "
            f"| {statistics.median(seconds):.1f} | {max(seconds):.1f} "
            f"| {sum(stop.made_steps - stop.kept_steps for stop in stops)} "
            f"| {f'{len(faults)} faults' if faults else 'right'} |"
        )
    return "\n".join(lines)


def main(words: Sequence[str]) -> None:
    """The distributed run that is stopped."""
    logging.basicConfig(level=logging.WARNING, format="warned: %(message)s")
    folder = pathlib.Path(words[0])
    slow = training.Slow(words[1], float(words[2]), int(words[3]), folder / "slow", os.getpid())
    config = small.experiment(
        folder / "run",
        _SlowBuilder(small.sac_builder().config, slow),
        num_env_steps=10**9,
        evaluation_period=0,
    )
    config = dataclasses.replace(
        config,
        environment_factory=functools.partial(training.make_slow, small.Ramp, slow),
        evaluation_environment_factory=small.Ramp,
    )
    result = distributed.run_distributed_experiment(config, num_actors=1)
    print("ended", result.env_steps, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
