"""Stops a run before it has made all its steps: it has reached its goal, or its time is up."""

import math
import pathlib
import time
from collections.abc import Mapping
from typing import Any, NoReturn

from minerva_acme import core
from minerva_acme.experiments import progress
from minerva_acme.runs import checkpointing, evaluation, options


class StopEarly:
    """A callback that stops a run at its `stop_at` or after its `stop_after_minutes`."""

    def __init__(self, run_options: options.RunOptions) -> None:
        """Starts the clock.

        Args:
            run_options: The run's options.
        """
        self._options = run_options
        self._began_at = time.monotonic()

    def __call__(self, progress_: progress.Progress) -> None:
        """Checks whether to stop.

        Raises:
            StopRun: The last evaluation has reached `stop_at`, or the time is up.
        """
        goal, minutes = self._options.stop_at, self._options.stop_after_minutes
        last = progress_.last_evaluation
        metric = self._options.metric
        if goal is not None and last is not None and (score := last.score(metric)) >= goal:
            _stop(f"the evaluation {evaluation.in_words(metric, score)} has reached `stop_at` {goal:g}")
        if minutes is not None and time.monotonic() - self._began_at >= 60.0 * minutes:
            _stop(f"the time is up, with `stop_after_minutes` {minutes:g}")


def reached(checkpoint: pathlib.Path, goal: float | None) -> str | None:
    """Returns the score of a checkpoint's last evaluation if it has reached the goal, which ends the run.

    Args:
        checkpoint: A checkpoint of the run.
        goal: The run's `stop_at`.

    Returns:
        The score in words, such as "return of 475.0", or None if it is below the goal or there is no goal or
        evaluation.

    Raises:
        DamagedCheckpoint: The checkpoint cannot be read.
    """
    return None if goal is None else _reached(checkpointing.load_state(checkpoint), goal)


def is_complete(checkpoint: pathlib.Path, run_options: Mapping[str, Any]) -> bool:
    """Returns whether a run has nothing left to do: its steps are made and evaluated, or its goal reached.

    A light checkpoint is never complete: replay is not in it.

    Args:
        checkpoint: The run's newest checkpoint.
        run_options: The run's options, as in its `run.json`. A run of an older version may lack some of them.

    Raises:
        DamagedCheckpoint: The checkpoint cannot be read.
    """
    goal = run_options.get("stop_at")
    num_steps = run_options.get("num_env_steps") or run_options.get("num_learner_steps") or 0
    is_made = num_steps > 0 and checkpointing.env_steps(checkpoint) >= num_steps
    if checkpointing.is_light(checkpoint) or not (is_made or goal is not None):
        return False
    state = checkpointing.load_state(checkpoint)
    if goal is not None and _reached(state, goal) is not None:
        return True
    if not is_made:
        return False
    # A signal may have interrupted the last evaluation, which is then left to do.
    evaluates = run_options.get("evaluation_episodes", 1) and state.get("has_evaluator", True)
    return not evaluates or evaluation.Evaluations.of(state).logged_until >= num_steps


def _reached(state: core.State, goal: float) -> str | None:
    known = evaluation.Evaluations.of(state)
    score = math.nan if known.latest is None else known.latest[1].score(known.metric)
    return evaluation.in_words(known.metric, score) if score >= goal else None


def _stop(reason: str) -> NoReturn:
    raise progress.StopRun(reason)
