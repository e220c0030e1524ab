"""Stops a run before it has made all its steps: it has reached its return, or its time is up."""

import pathlib
import time
from typing import NoReturn

from minerva_acme.experiments import progress
from minerva_acme.runs import checkpointing, evaluation, options


class StopEarly:
    """A callback that stops a run at its `stop_at_return` or after its `stop_after_minutes`."""

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
            StopRun: The last evaluation has reached `stop_at_return`, or the time is up.
        """
        goal, minutes = self._options.stop_at_return, self._options.stop_after_minutes
        last = progress_.last_evaluation
        if goal is not None and last is not None and last.mean >= goal:
            _stop(f"the evaluation return of {last.mean:.1f} has reached `stop_at_return` {goal:g}")
        if minutes is not None and time.monotonic() - self._began_at >= 60.0 * minutes:
            _stop(f"the time is up, with `stop_after_minutes` {minutes:g}")


def reached_return(checkpoint: pathlib.Path, goal: float | None) -> float | None:
    """Returns the mean of a checkpoint's last evaluation if it has reached the goal, which ends the run.

    Args:
        checkpoint: A checkpoint of the run.
        goal: The run's `stop_at_return`.

    Returns:
        The mean return, or None if it is below the goal or there is no goal or evaluation.

    Raises:
        DamagedCheckpoint: The checkpoint cannot be read.
    """
    if goal is None:
        return None
    latest = evaluation.Evaluations.of(checkpointing.load_state(checkpoint)).latest
    return latest[1].mean if latest is not None and latest[1].mean >= goal else None


def is_complete(checkpoint: pathlib.Path, num_steps: int, goal: float | None) -> bool:
    """Returns whether a run has nothing left to do: it has made all its steps or reached its return.

    A light checkpoint is never complete: it may be from the middle of the last evaluation.

    Args:
        checkpoint: The run's newest checkpoint.
        num_steps: The total steps of the run.
        goal: The run's `stop_at_return`.

    Raises:
        DamagedCheckpoint: The checkpoint cannot be read.
    """
    if checkpointing.is_light(checkpoint):
        return False
    return checkpointing.env_steps(checkpoint) >= num_steps or reached_return(checkpoint, goal) is not None


def _stop(reason: str) -> NoReturn:
    raise progress.StopRun(reason)
