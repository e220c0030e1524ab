"""Where the rows and films of a run go: CSV files, TensorBoard, Weights & Biases."""

import contextlib
import pathlib
from collections.abc import Mapping
from typing import Any

from minerva_acme import loggers
from minerva_acme.experiments import config as experiment_config

_FILM = "evaluation/video"
_STEPS_KEYS = {"actor": "actor_steps", "learner": "learner_steps", "evaluator": "actor_steps"}


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
            config: of the run.
            description: what the run is, which TensorBoard and Weights & Biases show. All but `options`,
                which may change when a run is resumed, is in TensorBoard's table of runs.
            resources: closes them.

        Raises:
            ValueError: Weights & Biases does not start; the message says what to do.
        """
        self._config = config
        self._wandb = self._events = None
        if config.wandb:
            run = loggers.WandbRun(config.directory, config=dict(description))
            self._wandb = resources.enter_context(run)
        if config.tensorboard:
            self._events = self._open_events(description)
        self.newest_row = loggers.NewestRow()
        """Holds the learner's newest row."""
        self.actor, self.learner, self.evaluator = (
            resources.enter_context(self._make_logger(label)) for label in _STEPS_KEYS
        )
        """A row for each training episode, every `log_period_seconds`, and for each evaluation."""

    def write_film(self, gif: bytes, *, step: int) -> None:
        """Shows the film of an evaluation, an animated gif, at an environment step."""
        if self._events is not None:
            self._events.write_film(_FILM, gif, step=step)
        if self._wandb is not None:
            steps_key = f"evaluator/{_STEPS_KEYS['evaluator']}"
            self._wandb.write_film(_FILM, gif, steps_key=steps_key, step=step)

    def _open_events(self, description: Mapping[str, Any]) -> loggers.TensorBoardLogger:
        folder = pathlib.Path(self._config.directory) / "tensorboard"
        loggers.write_description(folder, description)
        # What distinguishes this run from others; the options may change when it resumes.
        parameters = {k: v for k, v in description.items() if k not in ("hyperparameters", "options")}
        parameters |= description["hyperparameters"]
        return loggers.TensorBoardLogger(
            folder, "evaluator", _STEPS_KEYS["evaluator"], group="evaluator", hyperparameters=parameters
        )

    def _make_logger(self, label: str) -> loggers.Logger:
        others: list[loggers.Logger] = [self.newest_row] if label == "learner" else []
        if self._events is not None and label == "evaluator":
            others.append(self._events)
        if self._wandb is not None:
            others.append(self._wandb.make_logger(label, _STEPS_KEYS[label]))
        return loggers.make_default_logger(
            self._config.directory,
            label,
            steps_key=_STEPS_KEYS[label],
            terminal=False,
            tensorboard=self._config.tensorboard and label != "evaluator",
            others=others,
            time_delta=self._config.log_period_seconds if label == "learner" else 0.0,
        )
