"""`minerva sweep`."""

import collections
import contextlib
import pathlib
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.table import Column, Table
from rich.text import Text

from minerva_acme import datasets, distributed, plotting, results
from minerva_acme.cli import (
    choices,
    collect,
    commands,
    processes,
    report,
    sweep_checks,
    sweep_plan,
    training,
)
from minerva_acme.cli.output import Console
from minerva_acme.datasets import demonstrations
from minerva_acme.environments import task_settings
from minerva_acme.experiments import progress_display, stopping
from minerva_acme.runs import checkpointing, env_kwargs, options, run_folder, run_lock, run_results

LOG = "train.log"
"""The file in a run's folder that has its output."""
_SAVING_SECONDS = 60.0  # a replay is written within them
_LOOK_SECONDS = 0.1
_TAIL = 4096  # bytes at the end of a log that contain its last line


class State(NamedTuple):
    """The progress of a run."""

    made: int  # steps in its newest checkpoint
    is_done: bool


def run(command: commands.Sweep) -> int:
    """Trains all runs that are not done and reports the results; returns the exit status.

    Raises:
        ValueError: A requested run is not possible, a folder holds another run, or a report is not possible.
    """
    check_places(command)
    if command.search:
        raise ValueError("`search` is only for a search of settings. Add its number of trials: --optuna 30")
    plan = sweep_plan.make_plan(command)
    if command.report and any(run.train.run.evaluation_episodes for run in plan):
        _check_report(command, _metric(plan))
    console = Console()
    if not command.dry_run:
        wait_until_saved(plan, console)
    states = [find_state(run) for run in plan]
    sweep_checks.check(run for run, state in zip(plan, states, strict=True) if not state.is_done)
    directory = sweep_plan.directory_of(command)
    left = [run for run, state in zip(plan, states, strict=True) if not state.is_done]
    jobs = [processes.Job(run.words, run.directory / LOG) for run in left]
    with places(command, are_needed=bool(left) and not command.dry_run) as (at_once, start):
        _print_plan(plan, states, directory, at_once, console)
        if command.dry_run:
            for run in left:
                console.print(run.command)
            return 0
        with Display(left, console) as display:
            signal_name = processes.run_all(jobs, at_once=at_once, watcher=display, start=start)
    states = [find_state(run) for run in plan]
    statuses = {left[index].directory: status for index, status in display.statuses.items()}
    failed = [run for run, state in zip(plan, states, strict=True) if not state.is_done]
    if signal_name:
        console.print(
            f"Stopped by {signal_name}; {len(plan) - len(failed)} of {len(plan)} runs are done. To continue, "
            "repeat the same command."
        )
        unsaved = [run for run in failed if statuses.get(run.directory)]
        for run in unsaved:
            console.print(f"{run.title} ended without saving: {run.directory / LOG}")
        return 130 if unsaved else 0
    try:
        _report(command, [run for run, state in zip(plan, states, strict=True) if state.is_done], console)
    finally:  # last, where they are seen
        for run in failed:
            log = run.directory / LOG
            status = statuses[run.directory]
            ended = f"failed with status {status}" if status else "was stopped and saved"
            console.print(f"{run.title} {ended}: {last_line(log)}\n    {log}")
        if failed:
            console.print(
                f"{len(failed)} of {len(plan)} runs are not done. To retry, repeat the same command."
            )
    return 1 if failed else 0


def check_places(command: commands.Sweep) -> None:
    """Raises ValueError if it is not possible to run as many runs at a time, or there."""
    if command.jobs is not None and command.jobs < 1:
        raise ValueError(f"`jobs` must be >= 1, got {command.jobs}.")
    if command.address is not None and command.distributed is None:
        raise ValueError("`address` is only for a sweep on Ray. Add --distributed ray.")


@contextlib.contextmanager
def places(command: commands.Sweep, *, are_needed: bool) -> Iterator[tuple[int, processes.Start | None]]:
    """Gives the number of runs at a time, and what starts them elsewhere: None for this machine."""
    if command.distributed and are_needed:
        with distributed.RayJobs(command.address, command.jobs) as elsewhere:
            yield command.jobs or elsewhere.num_places, elsewhere.start
    else:
        yield command.jobs or 1, None


def wait_until_saved(runs: Iterable[sweep_plan.PlannedRun], console: Console) -> None:
    """Waits a while for runs that were left by a sweep that was killed; they save and end by themselves."""
    until = time.monotonic() + _SAVING_SECONDS
    for run in runs:
        if run_lock.is_held(run.directory):
            console.print(f"{run.title} is in use; waiting up to {_SAVING_SECONDS:.0f} seconds for it to end")
        while run_lock.is_held(run.directory) and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)


def find_state(run: sweep_plan.PlannedRun) -> State:
    """Returns the progress of a run.

    Raises:
        ValueError: Its folder holds another run, or one of other recorded episodes.
    """
    if not (run.directory / run_folder.FILE).exists():
        return State(0, False)
    description = training.describe(run.train)
    description.check_same_as(run_folder.read(run.directory), run.directory)
    checkpoint = checkpointing.latest(run.directory / "checkpoints")
    if checkpoint is None:
        return State(0, False)
    try:
        is_complete = stopping.is_complete(checkpoint, description.options)
        if is_complete:
            _check_data(run, checkpoint)
        is_recorded = training.is_recorded(description.options)
        return State(checkpointing.env_steps(checkpoint), is_complete and is_recorded)
    except checkpointing.DamagedCheckpoint:  # reported when it is resumed
        return State(0, False)


def _check_data(run: sweep_plan.PlannedRun, checkpoint: pathlib.Path) -> None:
    """Checks that a run that is done has learned from the recorded episodes that are asked for now.

    Raises:
        ValueError: It has learned from others.
    """
    path = run.train.run.dataset or run.train.run.demonstrations
    if path is None or (state := checkpointing.load_state(checkpoint).get("demonstrations")) is None:
        return
    try:
        demonstrations.check_checksum(state, datasets.read(path).checksum())
    except ValueError as error:
        raise ValueError(
            f"{run.directory} holds another run: {error} Or choose another --directory."
        ) from error


def _metric(plan: Iterable[sweep_plan.PlannedRun]) -> str:
    """Returns the metric of rows that a report compares: the one that all runs go by, or else the return."""
    found = {run.train.run.metric for run in plan}
    metric = found.pop() if len(found) == 1 else options.RETURN
    return results.RETURN if metric == options.RETURN else metric


def _check_report(command: commands.Sweep, metric: str) -> None:
    """Raises the errors that a report at the end would raise."""
    with choices.needed("sweep", "plot"):
        from minerva_acme.plotting import figure  # noqa: F401
    plotting.check_against(report.read_against(command.against), metric)
    arguments = env_kwargs.read(command.env_kwargs)
    names = [
        env_kwargs.with_settings(task_settings.split_repeat(environment).env_name, arguments)
        for environment in command.env
    ]
    ranges = report.read_ranges(command.range, names)
    for name in names:
        plotting.find_range(name, ranges, metric)


def _print_plan(
    plan: Sequence[sweep_plan.PlannedRun],
    states: Sequence[State],
    directory: pathlib.Path,
    jobs: int,
    console: Console,
) -> None:
    table = Table(
        Column("run", overflow="fold"), Column("steps", justify="right"), Column("made", justify="right")
    )
    for run, state in zip(plan, states, strict=True):
        made = "done" if state.is_done else f"{state.made:,}" if state.made else "-"
        table.add_row(run.title, f"{run.train.run.num_steps:,}", made)
    console.print(table, soft_wrap=False)
    num_done = sum(state.is_done for state in states)
    console.print(
        f"{len(plan)} runs in {directory}, {num_done} of them done, {min(jobs, len(plan))} at a time"
    )


def _report(command: commands.Sweep, done: Sequence[sweep_plan.PlannedRun], console: Console) -> None:
    by_name: dict[str, list[pathlib.Path]] = collections.defaultdict(list)
    for run in done:
        if run.train.run.evaluation_episodes:
            by_name[run.experiment].append(run.directory)
    if not by_name:
        console.print("There is nothing to report: no run that is done has evaluations.")
        return
    directory = sweep_plan.directory_of(command)
    experiments = [
        experiment
        for name, directories in by_name.items()
        for experiment in run_results.collect(directories, name=name)
    ]
    rows = collect.add(directory / "results", experiments, console)
    if command.report:
        # The rows may have runs of an earlier sweep with other environments.
        environments = {env_name for one in experiments for env_name, _ in one.trainings}
        report.run(
            commands.Report(
                results=tuple(map(str, rows)),
                env=tuple(sorted(environments)),
                against=command.against,
                range=command.range,
                metric=_metric(done),
                output=directory / "report",
            )
        )


class Display(progress_display.LiveDisplay):
    """Prints when runs start and end; on a terminal also shows the last line of each running run's log."""

    def __init__(self, runs: Sequence[sweep_plan.PlannedRun], console: Console) -> None:
        super().__init__(console, transient=True)
        self.statuses: dict[int, int] = {}
        self._runs = runs
        self._started_at: dict[int, float] = {}

    def started(self, index: int) -> None:
        self._started_at[index] = time.monotonic()
        self._print(index, "started")

    def ended(self, index: int, status: int) -> None:
        self.statuses[index] = status
        seconds = round(time.monotonic() - self._started_at.pop(index))
        time_ = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        how = f"ended with status {status}" if status else "ended"
        self._print(index, f"{how} after {time_}")

    def tick(self) -> None:
        if self.is_live:
            table = Table.grid(
                Column(no_wrap=True), Column(no_wrap=True, overflow="ellipsis"), padding=(0, 2)
            )
            for index in self._started_at:
                run = self._runs[index]
                table.add_row(Text(run.title), Text(last_line(run.directory / LOG)))
            self.show(table)

    def _print(self, index: int, what: str) -> None:
        number = f"{index + 1}/{len(self._runs)}"
        self._console.print(f"{number:>7}  {self._runs[index].title}: {what}")


def last_line(log: pathlib.Path) -> str:
    """Returns the last line of a log that is not empty, or ""."""
    with contextlib.suppress(OSError), open(log, "rb") as file:
        file.seek(max(0, file.seek(0, 2) - _TAIL))
        lines = file.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")
    return ""
