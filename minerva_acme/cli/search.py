"""`minerva sweep --optuna`: a search for settings with a high return, or another high metric."""

import math
import pathlib
import shlex
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Column, Table

from minerva_acme import plotting
from minerva_acme.cli import (
    choices,
    commands,
    processes,
    search_space,
    sweep,
    sweep_checks,
    sweep_plan,
    training,
)
from minerva_acme.cli.output import Console
from minerva_acme.runs import checkpointing, evaluation, run_lock, run_results
from minerva_acme.runs import options as run_options

if TYPE_CHECKING:
    from minerva_acme.cli import study as studies

FILE = "study.json"
_NUM_SHOWN = 10


def run(command: commands.Sweep) -> int:
    """Runs all trials that have not ended and shows the best; returns the exit status.

    Raises:
        ValueError: The search is not possible, or the folder holds another one.
    """
    assert command.optuna is not None
    sweep.check_places(command)
    if command.optuna < 1:
        raise ValueError(f"`optuna` must be >= 1 trial, got {command.optuna}.")
    if len(command.env) != 1:
        raise ValueError(
            f"`env` must be one environment with --optuna, got {len(command.env)}: returns of different "
            "environments cannot be averaged. Search each in a folder of its own."
        )
    space = search_space.make_space(command)
    with choices.needed("sweep --optuna", "optuna"):
        from minerva_acme.cli import study as studies
    base = _check(command, space)
    console = Console()
    directory = search_space.directory_of(command)
    _print_space(command, space, console)
    if command.dry_run:
        console.print(f"Each trial: {base.command}")
        return 0
    with run_lock.hold(directory):
        study = studies.Study(
            directory / FILE,
            space,
            identity=_identity(command, space, base.train),
            seed=command.search_seed,
            num_steps=base.train.run.num_steps,
        )
        with sweep.places(command, are_needed=len(study.finished) < command.optuna) as (at_once, start):
            while (left := command.optuna - len(study.finished)) > 0:
                trials = study.next_trials(min(left, max(1, at_once // len(command.seeds))))
                status = _Generation(command, space, study, trials[:left], console).run(at_once, start)
                if status is not None:
                    return status
        return _show(command, space, study.finished, console)


class _RunningTrial:
    """A trial: its runs, and what their evaluations say so far."""

    def __init__(self, trial: "studies.Trial", runs: Sequence[sweep_plan.PlannedRun], error: str) -> None:
        self.trial = trial
        self.runs = runs
        self.error = error  # why it failed
        self.is_pruned = False
        self.values: dict[int, float] = {}  # by step, see `read_values`


class _Generation(sweep.Display):
    """Trials that run at the same time. They are judged and stored in the order of their numbers, whichever
    ends first."""

    def __init__(
        self,
        command: commands.Sweep,
        space: search_space.Space,
        study: "studies.Study",
        trials: Sequence["studies.Trial"],
        console: Console,
    ) -> None:
        self._study = study
        self._prunes = command.prune
        self._trials = []
        for trial in trials:
            runs: tuple[sweep_plan.PlannedRun, ...] = ()
            error = ""
            try:
                runs = search_space.plan_trial(command, space, trial.number, trial.params)
            except ValueError as reason:  # values that are valid only with others
                error = str(reason)
            self._trials.append(_RunningTrial(trial, runs, error))
        sweep.wait_until_saved((run for running in self._trials for run in running.runs), console)
        left = [
            (running, run)
            for running in self._trials
            for run in running.runs
            if not sweep.find_state(run).is_done
        ]
        self._of_job = [running for running, _ in left]
        self._unwanted: set[int] = set()
        super().__init__([run for _, run in left], console)

    def run(self, at_once: int, start: processes.Start | None) -> int | None:
        """Runs the trials and stores them; returns an exit status if they were stopped before, else None."""
        self._judge()
        jobs = [processes.Job(run.words, run.directory / sweep.LOG) for run in self._runs]
        with self:
            signal_name = processes.run_all(
                jobs, at_once=at_once, watcher=self, start=start, unwanted=self._unwanted
            )
        if signal_name:
            self._console.print(f"Stopped by {signal_name}. To continue, repeat the same command.")
            return 130 if any(self.statuses.values()) else 0
        self._judge()
        for running in self._trials:
            if not self._store(running):
                number = running.trial.number
                self._console.print(f"Trial {number} was stopped. To continue, repeat the same command.")
                return 1
        return None

    def ended(self, index: int, status: int) -> None:
        super().ended(index, status)
        running, run = self._of_job[index], self._runs[index]
        if status and index not in self._unwanted and not sweep.find_state(run).is_done:
            log = run.directory / sweep.LOG
            error = f"{run.title} failed with status {status}: {sweep.last_line(log)} ({log})"
            if run_lock.is_held(run.directory):  # by another process: the settings are not to blame
                self._console.print(error)
            else:
                running.error = error
                self._stop(running)

    def tick(self) -> None:
        super().tick()
        self._judge()

    def _judge(self) -> None:
        """Prunes the trials whose newest evaluations are too low."""
        for running in self._trials:
            if running.is_pruned or not running.runs:
                continue
            known = running.values
            for step, value in read_values(running.runs).items():
                if step in known:
                    continue
                known[step] = value
                is_last = step >= len(running.runs) * running.runs[0].train.run.num_steps
                if self._prunes and not is_last and self._study.should_prune(running.trial, known):
                    running.is_pruned = True
                    self._stop(running)
                    break

    def _stop(self, running: _RunningTrial) -> None:
        self._unwanted |= {index for index, found in enumerate(self._of_job) if found is running}

    def _store(self, running: _RunningTrial) -> bool:
        """Stores how a trial has ended; returns False if it has not."""
        number, state, value = running.trial.number, "failed", None
        if running.is_pruned:
            state, value = "pruned", list(running.values.values())[-1]
        elif not running.error:
            if not all(sweep.find_state(run).is_done for run in running.runs):
                return False
            value = statistics.fmean(_last_mean(run.directory) for run in running.runs)
            state = "complete"
            if not math.isfinite(value):
                running.error, state, value = f"the last evaluation is {value}", "failed", None
        self._study.add(running.trial, state, value, running.values, running.error)
        outcome = running.error if value is None else _value(value, running.runs[0].train.run.metric)
        self._console.print(f"trial {number} is {state}: {outcome}, {_shown(running.trial.params)}")
        return True


def read_values(runs: Sequence[sweep_plan.PlannedRun]) -> dict[int, float]:
    """Returns the values of a trial by step, as far as its runs have come.

    The steps of the runs count one run after another, whichever is ahead. The value at a step is the mean
    over this run's evaluation there and the last evaluations of the runs before it. Steps are rounded down to
    a multiple of the evaluation period, since they depend on the number of environments.
    """
    values: dict[int, float] = {}
    ended: list[float] = []
    for index, run in enumerate(runs):
        options = run.train.run
        curve = plotting.Curve((), ())  # type: ignore[arg-type]
        if (run.directory / "evaluator.csv").exists():
            curve = plotting.read_curve(run.directory, f"evaluator/{options.metric}", options.steps_key)
        for step, value in zip(curve.x, curve.values, strict=True):
            made = min(int(step), options.num_steps)
            if 0 < made < options.num_steps and options.evaluation_period:
                made -= made % options.evaluation_period
            if made > 0:
                values[index * options.num_steps + made] = statistics.fmean([*ended, float(value)])
        if not len(curve.x) or curve.x[-1] < options.num_steps:
            break
        ended.append(float(curve.values[-1]))
    return values


def _last_mean(directory: pathlib.Path) -> float:
    """Returns the score of a finished run's last evaluation, the mean of its metric."""
    checkpoint = checkpointing.latest(directory / "checkpoints")
    assert checkpoint is not None
    known = evaluation.Evaluations.of(checkpointing.load_state(checkpoint))
    return math.nan if known.latest is None else known.latest[1].score(known.metric)


def _check(command: commands.Sweep, space: search_space.Space) -> sweep_plan.PlannedRun:
    """Checks the environment, and the agent with the ends of all ranges; returns a run with no value of them.

    Raises:
        ValueError: One of them is not possible.
    """
    base, *others = (
        search_space.plan_trial(command, space, 0, params)[0]._replace(title=_shown(params) or "the preset")
        for params in ({}, *space.extremes())
    )
    if base.train.run.stop_after_minutes is not None:
        raise ValueError(
            "`stop_after_minutes` must not be given with --optuna: trials that end at different steps "
            "cannot be compared. Lower --num-env-steps instead."
        )
    sweep_checks.check([base, *others])
    return base


def _identity(command: commands.Sweep, space: search_space.Space, train: commands.Train) -> dict[str, Any]:
    """Returns what all trials of a search have in common, as plain values."""
    description = training.describe(train)
    settings = {**description.options, **description.data()}
    return {
        **{
            name: value for name, value in description.hyperparameters.items() if name not in space.dimensions
        },
        **{name: settings[name] for name in ("num_env_steps", "num_learner_steps", *run_results.OPTIONS)},
        "agent": command.agent,
        "env": command.env[0],
        "env_kwargs": description.environment_settings,
        "seeds": command.seeds,
        "search": {name: str(dimension) for name, dimension in space.dimensions.items()},
    }


def _print_space(command: commands.Sweep, space: search_space.Space, console: Console) -> None:
    table = Table("setting", Column("values", overflow="fold"))
    for name, dimension in space.dimensions.items():
        table.add_row(name, str(dimension))
    console.print(table, soft_wrap=False)
    console.print(
        f"{command.optuna} trials of {len(command.seeds)} runs each, in {search_space.directory_of(command)}"
    )


def _show(
    command: commands.Sweep,
    space: search_space.Space,
    finished: Sequence["studies.Finished"],
    console: Console,
) -> int:
    """Shows the best trials; returns the exit status."""
    complete = sorted(
        (trial for trial in finished if trial.state == "complete"), key=lambda trial: -(trial.value or 0.0)
    )
    states = [trial.state for trial in finished]
    counts = [f"{states.count(state)} {state}" for state in ("complete", "pruned", "failed")]
    console.print(f"{len(finished)} trials: {', '.join(counts)}")
    if not complete:
        console.print(f"The logs: {search_space.directory_of(command)}/trial*/**/{sweep.LOG}")
        return 1
    best = complete[0]
    run = search_space.plan_trial(command, space, best.number, best.params)[0]
    metric = run.train.run.metric
    scored = "mean return" if metric == run_options.RETURN else metric
    table = Table(Column("trial", justify="right"), Column(scored, justify="right"), "settings")
    for trial in complete[:_NUM_SHOWN]:
        table.add_row(str(trial.number), _value(trial.value or 0.0, metric), _shown(trial.params))
    console.print(table, soft_wrap=False)
    words = shlex.join(["minerva", *run.words[: run.words.index("--seed")]])
    unseen = max(command.seeds) + 1
    console.print(f"To train with the best settings and a new seed: {words} --seed {unseen}")
    return 0


def _value(value: float, metric: str) -> str:
    return f"{value:.1f}" if metric == run_options.RETURN else f"{value:.4g}"


def _shown(params: Mapping[str, int | float | str]) -> str:
    return ", ".join(
        value if isinstance(value, str) else f"{name}={value:.4g}" for name, value in params.items()
    )
