"""The logs of a run, for its rows and videos: CSV files, TensorBoard, Weights & Biases."""

import contextlib
import logging
import pathlib
from collections.abc import Mapping
from typing import Any

from minerva_acme import loggers
from minerva_acme.machine import writing
from minerva_acme.runs import config as experiment_config
from minerva_acme.runs import run_curves

_logger = logging.getLogger(__name__)

_FILM = "evaluation/video"
# TensorBoard sorts groups by name, capitals first, and opens on the first: what a reader looks for.
_TAGS = {"actor": {"episode_return": "Return/training"}, "evaluator": {"episode_return": "Return/evaluation"}}


def last_step(directory: pathlib.Path) -> float:
    """Returns the largest number of steps in the CSV logs of a run's folder, 0 without any."""
    largest = 0.0
    for path in directory.glob("*.csv"):
        with contextlib.suppress(ValueError):  # it is no CSV
            for row in run_curves.read_rows(path):
                found = (row.get(name) or "" for name in ("actor_steps", "learner_steps"))
                largest = max([largest, *(float(number) for number in found if number.isdecimal())])
    return largest


class RunLogs:
    """The loggers of a run, in its folder."""

    def __init__(
        self,
        config: experiment_config.ExperimentConfig,
        description: Mapping[str, Any],
        resources: contextlib.ExitStack,
    ) -> None:
        """Opens the logs.

        Args:
            config: The run's config.
            description: The run's description, which TensorBoard and Weights & Biases show. All but
                `options`, which may change when a run is resumed, is in TensorBoard's table of runs.
            resources: A stack that closes the logs.

        Raises:
            ValueError: Weights & Biases does not start, or a file or folder of logs is a symbolic link; the
                message says what to do.
        """
        self._config = config
        self._steps_keys = {
            "actor": "actor_steps",
            "learner": "learner_steps",
            "evaluator": config.steps_key,
        }
        self._description = description
        self._wandb = None
        self._csv: dict[str, loggers.CSVLogger] = {}
        self._events: dict[str, loggers.TensorBoardLogger] = {}
        if config.wandb:
            self._wandb = resources.enter_context(
                loggers.WandbRun(config.directory, config=dict(description))
            )
        self._tensorboard: loggers.TensorBoardRun | None = None
        if config.tensorboard:
            folder = pathlib.Path(config.directory) / "tensorboard"
            writing.refuse_link(folder)
            self._tensorboard = resources.enter_context(loggers.TensorBoardRun(folder))
            self._tensorboard.write_description(description)
        self.newest_row = loggers.NewestRow()
        """A logger that keeps the learner's newest row."""
        self.actor, self.learner, self.evaluator = (
            resources.enter_context(self._make_logger(label)) for label in self._steps_keys
        )
        """The loggers: a row for each training episode, every `log_period_seconds` and each evaluation."""

    def cut(self, **last: int) -> None:
        """Removes the rows that were logged after a checkpoint, before those steps are repeated.

        Rows in Weights & Biases cannot be removed: it shows those steps twice.

        Args:
            last: The step of the last row to keep, by the label of the logger.
        """
        if self._tensorboard is not None:
            rows = {f"{label}/{self._steps_keys[label]}": step for label, step in last.items()}
            films = {_FILM: last["evaluator"]} if "evaluator" in last else {}
            made = [step for label, step in last.items() if self._steps_keys[label] == self._config.steps_key]
            self._tensorboard.cut(rows | films, step=max(made, default=0))
        for label, step in last.items():
            path, steps_key = self._csv[label].path, self._steps_keys[label]
            if num_rows := self._csv[label].cut(steps_key, step):
                level = logging.INFO if step > 0 else logging.WARNING  # at step 0, all rows are removed
                message = "%s: %d rows with `%s` above %d are removed; the run repeats these steps"
                _logger.log(level, message, path, num_rows, steps_key, step)
                if self._wandb is not None:
                    _logger.warning("Weights & Biases keeps these rows and will show the steps twice")

    def write_film(self, gif: bytes, *, step: int) -> None:
        """Logs the video of an evaluation, an animated GIF, at a step of the run."""
        if "evaluator" in self._events:
            self._events["evaluator"].write_film(_FILM, gif, step=step)
        if self._wandb is not None:
            steps_key = f"evaluator/{self._steps_keys['evaluator']}"
            self._wandb.write_film(_FILM, gif, steps_key=steps_key, step=step)

    def _make_logger(self, label: str) -> loggers.Logger:
        steps_key = self._steps_keys[label]
        parts: list[loggers.Logger] = [self.newest_row] if label == "learner" else []
        self._csv[label] = loggers.CSVLogger(self._config.directory, label)
        parts.append(self._csv[label])
        if self._tensorboard is not None:
            self._events[label] = loggers.TensorBoardLogger(
                self._config.directory,
                label,
                self._config.steps_key,
                group=label,
                hyperparameters=self._hyperparameters() if label == "evaluator" else None,
                run=self._tensorboard,
                tags=_TAGS.get(label),
            )
            parts.append(self._events[label])
        if self._wandb is not None:
            parts.append(self._wandb.make_logger(label, steps_key))
        if self._config.logger_factory is not None:
            parts.append(self._config.logger_factory(label))
        seconds = self._config.log_period_seconds if label == "learner" else 0.0
        return loggers.TimeFilter(loggers.Dispatcher(parts), seconds)

    def _hyperparameters(self) -> dict[str, Any]:
        """Returns the values that tell runs apart, without the options, which may change on a resume."""
        description = self._description
        parameters = {k: v for k, v in description.items() if k not in ("hyperparameters", "options")}
        return parameters | description["hyperparameters"]
