"""When a run ends before it has made all its steps: it has reached its return, or its time is over."""

import pathlib
import time
from typing import NoReturn

from minerva_acme.experiments import progress
from minerva_acme.runs import checkpointing, evaluation, options


class StopEarly:
    """A callback that ends a run as its options say."""

    def __init__(self, run_options: options.RunOptions) -> None:
        """Starts the clock. Args: run_options: say when to stop."""
        self._options = run_options
        self._began_at = time.monotonic()

    def __call__(self, progress_: progress.Progress) -> None:
        """Raises: StopRun: the last evaluation has reached `stop_at_return`, or the time is over."""
        goal, minutes = self._options.stop_at_return, self._options.stop_after_minutes
        last = progress_.last_evaluation
        if goal is not None and last is not None and last.mean >= goal:
            _stop(f"the evaluation return of {last.mean:.1f} has reached `stop_at_return` {goal:g}")
        if minutes is not None and time.monotonic() - self._began_at >= 60.0 * minutes:
            _stop(f"the time is over, with `stop_after_minutes` {minutes:g}")


def reached_return(checkpoint: pathlib.Path, goal: float | None) -> float | None:
    """Returns the mean of a checkpoint's last evaluation if it has reached a goal, so that the run is done.

    Args:
        checkpoint: of the run.
        goal: its `stop_at_return`.

    Raises:
        DamagedCheckpoint: it cannot be read.
    """
    if goal is None:
        return None
    latest = evaluation.Evaluations.of(checkpointing.load_state(checkpoint)).latest
    return latest[1].mean if latest is not None and latest[1].mean >= goal else None


def _stop(reason: str) -> NoReturn:
    raise progress.StopRun(reason)
