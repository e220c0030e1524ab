"""The loggers of a run."""

import os
import pathlib
from collections.abc import Sequence

from minerva_acme.loggers import base, combinators
from minerva_acme.loggers import csv as csv_loggers
from minerva_acme.loggers import tensorboard as tensorboard_loggers
from minerva_acme.loggers import terminal as terminal_loggers


def make_default_logger(
    directory: str | os.PathLike[str],
    label: str,
    *,
    steps_key: str,
    terminal: bool = True,
    csv: bool = True,
    tensorboard: bool = True,
    time_delta: float = 0.0,
    others: Sequence[base.Logger] = (),
) -> base.Logger:
    """Makes the loggers that a run's folder holds, behind one.

    Args:
        directory: the run's folder.
        label: what logs, such as `learner`.
        steps_key: the value that TensorBoard draws the others against.
        terminal: whether to write to standard output.
        csv: whether to write `<directory>/<label>.csv`.
        tensorboard: whether to write events under `<directory>/tensorboard`.
        time_delta: seconds between rows; the last row is always written.
        others: more loggers that get the same rows, owned from here on.
    """
    loggers: list[base.Logger] = []
    if terminal:
        loggers.append(terminal_loggers.TerminalLogger(label))
    if csv:
        loggers.append(csv_loggers.CSVLogger(directory, label))
    if tensorboard:
        folder = pathlib.Path(directory) / "tensorboard"
        loggers.append(tensorboard_loggers.TensorBoardLogger(folder, label, steps_key, group=label))
    return combinators.TimeFilter(combinators.Dispatcher([*loggers, *others]), time_delta)
