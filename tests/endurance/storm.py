"""Trainings that are killed at random moments, again and again, and must come out right."""

import contextlib
import csv
import itertools
import multiprocessing
import multiprocessing.forkserver
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import tree

from minerva_acme.runs import checkpointing

from . import training

_MOMENTS = {"play": 0.45, "save": 0.4, "start": 0.15}  # what a kill interrupts, and how often
_MAX_SECONDS = 900.0  # that a process may take, on a machine that does much else
_POLL_SECONDS = 0.002
_HALF_DONE = (".unfinished-*", ".removed-*", ".replay/*/*")  # in the folder of checkpoints
_COUNTS = ("actor_steps", "learner_steps", "actor_episodes")

_PROCESSES = multiprocessing.get_context("forkserver")

Moment = Callable[[Iterator[list["Report"]]], None]
"""Returns when a training is to be killed. It is given the reports that have come since it last asked."""


class Report(NamedTuple):
    """A line that a training wrote down."""

    time: float
    phase: str
    env_steps: int
    learner_steps: int
    num_episodes: int


class Attempt(NamedTuple):
    """What one process of a training did."""

    status: int
    started_at: float
    reports: list[Report]

    def start_seconds(self) -> float | None:
        """From its start to its first environment step, without Python's imports."""
        steps = (report.time for report in self.reports if report.phase == "train")
        return next((when - self.started_at for when in steps), None)

    def save_seconds(self) -> list[float]:
        """How long each save took."""
        pairs = zip(self.reports, self.reports[1:], strict=False)
        return [after.time - before.time for before, after in pairs if before.phase == "save"]


class Kill(NamedTuple):
    """What a kill left behind."""

    moment: str
    amid_save: bool  # there were half-done files
    made_steps: int  # environment steps up to it
    kept_steps: int  # those of the newest checkpoint


class Result(NamedTuple):
    """What became of a training."""

    name: str
    kills: list[Kill]
    resume_seconds: list[float]
    """From the start of each process that resumed to its first environment step."""
    faults: list[str]


def begin_processes(stores: Iterable[str]) -> None:
    """Forks each process from one that has imported what takes seconds, and has no thread yet."""
    imports = ["tests.endurance.training", "gymnasium", "torch._dynamo"]
    _PROCESSES.set_forkserver_preload(imports + ["reverb"] * ("reverb" in list(stores)))


def end_processes() -> None:
    """Ends the process that the others are forked from."""
    multiprocessing.forkserver._forkserver._stop()  # type: ignore[attr-defined]


def _train(output: pathlib.Path, temporary: pathlib.Path, *arguments: Any) -> None:
    """What a process does."""
    with open(output, "ab") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    training.prepare()
    training.storm(*arguments)


class Training:
    """A training that is killed and started again."""

    def __init__(self, agent: str, store: str, folder: pathlib.Path, num_env_steps: int) -> None:
        """Starts nothing yet. Args: folder: for the run and what is noted of it."""
        self.run = folder / "run"
        self.num_env_steps = num_env_steps
        self.temporary = folder / "temporary"
        self.temporary.mkdir(parents=True, exist_ok=True)
        self._output = folder / "output.txt"
        self._journal = folder / "journal.txt"
        self._journal.touch()
        self._arguments = (agent, store, folder, num_env_steps)

    def attempt(self, moment: Moment | None, slow: training.Slow | None = None) -> Attempt:
        """Starts it, or starts it again, and kills it at a moment, if it still lives then.

        Args:
            moment: returns then; None: lets it end.
            slow: what takes long in it, if anything.
        """
        place, started_at = self._drop_half_line(), time.time()
        process = _PROCESSES.Process(
            target=_train, args=(self._output, self.temporary, *self._arguments, slow)
        )
        process.start()
        try:
            if moment is None:
                process.join(_MAX_SECONDS)
            else:
                with contextlib.suppress(StopIteration):  # it has ended before
                    moment(self._follow(process, place))
        finally:
            process.kill()
            process.join()
        assert process.exitcode is not None
        return Attempt(process.exitcode, started_at, self._read(place)[0])

    def newest(self) -> pathlib.Path | None:
        """The checkpoint that it resumes from.

        Raises:
            OSError: the newest one is not whole.
        """
        newest = checkpointing.latest(self.run / "checkpoints")
        if newest is not None and checkpointing.find_to_resume(self.run) != newest:
            raise OSError(f"{newest} is damaged")
        return newest

    def is_amid_save(self) -> bool:
        """Whether files of a save are half done."""
        return any(any((self.run / "checkpoints").glob(pattern)) for pattern in _HALF_DONE)

    def files(self) -> list[str]:
        """The files of the run but the checkpoints, and what checkpoints are not."""
        outside = [path.name for path in self.run.iterdir()]
        return sorted(outside + [path.name for path in (self.run / "checkpoints").glob(".*")])

    def rows(self, label: str) -> list[dict[str, str]]:
        """A log without its columns of time."""
        with open(self.run / f"{label}.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        return [{k: v for k, v in row.items() if "second" not in k and "walltime" not in k} for row in rows]

    def _drop_half_line(self) -> int:
        """Cuts what a killed process wrote of its last line, and returns where the next one begins."""
        end = self._journal.read_bytes().rfind(b"\n") + 1
        os.truncate(self._journal, end)
        return end

    def _read(self, place: int) -> tuple[list[Report], int]:
        """The whole lines from a place on, and the place behind them: the last one may be half written."""
        with open(self._journal, "rb") as file:
            file.seek(place)
            written = file.read()
        lines = written[: written.rfind(b"\n") + 1]
        words = (line.decode().split() for line in lines.splitlines())
        reports = [Report(float(when), what, *map(int, counts)) for when, what, *counts in words]
        return reports, place + len(lines)

    def _follow(self, process: multiprocessing.process.BaseProcess, place: int) -> Iterator[list[Report]]:
        deadline = time.monotonic() + _MAX_SECONDS
        while process.is_alive() and time.monotonic() < deadline:
            reports, place = self._read(place)
            yield reports
            time.sleep(_POLL_SECONDS)


def run(
    agent: str,
    store: str,
    folder: pathlib.Path,
    *,
    num_kills: int,
    seed: int,
    num_env_steps: int | None = None,
) -> Result:
    """Kills a training, lets it end, and compares it with one that was not killed.

    Args:
        agent: one of `training.AGENTS`.
        store: one of `training.STORES`.
        folder: a new one.
        num_kills: how many processes are killed before one may end.
        seed: of the moments.
        num_env_steps: of the training; so many that it does not end before, by default.
    """
    name = f"{agent}/{store}"
    interval = training.AGENTS[agent].steps_between_saves
    # From a kill to the next the run comes half an interval further, on average.
    num_env_steps = num_env_steps or interval * (num_kills * 3 // 4 + 3)
    storm = Training(agent, store, folder / "storm", num_env_steps)
    straight = Training(agent, store, folder / "straight", num_env_steps)
    random_ = random.Random(f"{name} {seed}")
    result = Result(name, [], [], [])
    start_seconds, save_seconds, saved = 1.0, 0.1, counts(None)
    for index in range(num_kills + 1):
        kind = "play" if index == 0 else random_.choices(list(_MOMENTS), list(_MOMENTS.values()))[0]
        moment = make_moment(kind, random_, interval, start_seconds=start_seconds, save_seconds=save_seconds)
        attempt = storm.attempt(None if index == num_kills else moment)
        expected = 0 if index == num_kills else -9
        if attempt.status != expected:
            result.faults.append(f"{name}: process {index} ended with {attempt.status}, not {expected}")
            return result
        result.faults.extend(f"{name}, after kill {index}: {f}" for f in check_resumed(saved, attempt))
        start_seconds = attempt.start_seconds() or start_seconds
        if index > 0 and attempt.start_seconds():
            result.resume_seconds.append(start_seconds)
        save_seconds = statistics.median(attempt.save_seconds() or [save_seconds])
        if index < num_kills:
            is_amid_save, before = storm.is_amid_save(), saved["actor_steps"]
            saved = counts(storm.newest())
            kept = saved["actor_steps"]
            made = max([kept, *(report.env_steps for report in attempt.reports)])
            result.kills.append(Kill(kind, is_amid_save, made, kept))
            if kept < before:
                result.faults.append(f"{name}: kill {index + 1} took the run back from {before} to {kept}")
            print(f"{name}: {result.kills[-1]}", flush=True)
    if (status := straight.attempt(None).status) != 0:
        result.faults.append(f"{name}: the training that was not killed ended with {status}")
        return result
    result.faults.extend(
        f"{name}: {fault}" for fault in compare(storm, straight, is_seeded=store == "memory")
    )
    return result


def make_moment(
    kind: str, random_: random.Random, interval: int, *, start_seconds: float, save_seconds: float
) -> Moment:
    """Draws when to kill.

    Args:
        kind: "start": within the second half of a start; "save": within a save, mostly; "play":
            up to two intervals after the first step.
        random_: draws it.
        interval: environment steps between saves.
        start_seconds: how long a start takes.
        save_seconds: how long a save takes.
    """
    part = random_.random()

    def at_start(reports: Iterator[list[Report]]) -> None:
        latest = time.monotonic() + start_seconds * (0.5 + 0.5 * part)
        next(new for new in reports if new or time.monotonic() > latest)

    def in_save(reports: Iterator[list[Report]]) -> None:
        next(new for new in reports if any(report.phase == "save" for report in new))
        time.sleep(save_seconds * part)

    def in_play(reports: Iterator[list[Report]]) -> None:
        steps = (report.env_steps for new in reports for report in new)
        first = next(steps)
        next(step for step in steps if step > first + 2 * interval * part)

    return {"start": at_start, "save": in_save, "play": in_play}[kind]


def counts(checkpoint: pathlib.Path | None) -> dict[str, int]:
    """The counts of a checkpoint; zeros where there is none."""
    found = {} if checkpoint is None else checkpointing.load_state(checkpoint)["counter"]
    return {name: int(found.get(name, 0)) for name in _COUNTS}


def check_resumed(saved: dict[str, int], attempt: Attempt) -> list[str]:
    """Finds what a process did not take from its checkpoint's counts, or counted backwards."""
    expected = list(saved.values())
    faults = []
    if attempt.reports and list(attempt.reports[0][2:]) != expected:
        faults.append(f"{_COUNTS} must be {expected} as in the checkpoint, got {attempt.reports[0][2:]}")
    for before, after in zip(attempt.reports, attempt.reports[1:], strict=False):
        if any(b > a for b, a in zip(before[2:], after[2:], strict=True)):
            faults.append(f"counts fell from {before} to {after}")
    return faults


def compare(storm: Training, straight: Training, *, is_seeded: bool) -> list[str]:
    """Finds what differs from the training that was not killed.

    Args:
        storm: that which was killed.
        straight: that which was not.
        is_seeded: whether every number must be the same; else the counts must be.
    """
    faults = []

    def expect(what: str, found: Any, expected: Any) -> None:
        if found != expected:
            faults.append(f"{what} must be {expected}, got {found}")

    ends = [training_.newest() for training_ in (storm, straight)]
    one, other = map(counts, ends)
    expect("actor_steps", one["actor_steps"], storm.num_env_steps)
    expect("learner_steps", one["learner_steps"], other["learner_steps"])
    expect("files", storm.files(), straight.files())
    expect("temporary files", sorted(os.listdir(storm.temporary)), sorted(os.listdir(straight.temporary)))
    # Each row once, and in order.
    learner = [int(row["learner_steps"]) for row in storm.rows("learner")]
    faults += _compare_rows("learner", learner, list(range(1, one["learner_steps"] + 1)))
    evaluator = [int(row["actor_steps"]) for row in storm.rows("evaluator")]
    period = training.EVALUATION_PERIOD
    due = sorted({*range(0, storm.num_env_steps, period), storm.num_env_steps})
    faults += _compare_rows("evaluator", evaluator, due)
    # Several environments may end an episode at one step.
    ended = [(int(row["actor_steps"]), row.get("environment", "")) for row in storm.rows("actor")]
    faults += _compare_rows("actor", ended, sorted(set(ended)))
    expect("the number of the actor's rows", len(ended), one["actor_episodes"])
    if is_seeded:
        for label in ("actor", "learner", "evaluator"):
            expect(f"every number of {label}.csv", storm.rows(label) == straight.rows(label), True)
        found, wanted = map(leaves, ends)
        different = [name for name in found | wanted if found.get(name) != wanted.get(name)]
        expect("leaves of the last checkpoint that differ", different, [])
    return faults


def _compare_rows(label: str, found: Sequence[object], expected: Sequence[object]) -> list[str]:
    """Finds the first row that differs."""
    rows = enumerate(itertools.zip_longest(found, expected), 1)
    different = ((n, here, there) for n, (here, there) in rows if here != there)
    return [f"row {n} of {label}.csv must be of {t}, got {h}" for n, h, t in itertools.islice(different, 1)]


def leaves(checkpoint: pathlib.Path | None) -> dict[str, object]:
    """What a checkpoint holds but the times, bit for bit."""
    assert checkpoint is not None
    flat = tree.flatten_with_path(checkpointing.load_state(checkpoint))
    named = {"/".join(map(str, path)): leaf for path, leaf in flat}
    return {name: _as_bits(leaf) for name, leaf in named.items() if "walltime" not in name}


def _as_bits(leaf: Any) -> object:
    if isinstance(leaf, torch.Tensor | np.ndarray):
        array = np.asarray(leaf)
        return array.dtype.str, array.shape, array.tobytes()
    return repr(leaf)


def table(results: Sequence[Result]) -> str:
    """The figures as a Markdown table."""
    lines = [
        "| training | kills | of these amid a save | while starting | resumed | steps lost per kill: median "
        "| most | seconds to the first step: median | most | result |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, kills, seconds, faults in results:
        lost = [kill.made_steps - kill.kept_steps for kill in kills if kill.moment != "start"] or [0]
        seconds = seconds or [float("nan")]
        lines.append(
            f"| {name} | {len(kills)} | {sum(kill.amid_save for kill in kills)} "
            f"| {sum(kill.moment == 'start' for kill in kills)} | {len(seconds)} "
            f"| {statistics.median(lost):.0f} | {max(lost)} "
            f"| {statistics.median(seconds):.1f} | {max(seconds):.1f} "
            f"| {f'{len(faults)} faults' if faults else 'right'} |"
        )
    return "\n".join(lines)
