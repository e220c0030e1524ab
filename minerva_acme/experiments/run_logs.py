"""Where the rows and films of a run go: CSV files, TensorBoard, Weights & Biases."""

import contextlib
import functools
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from minerva_acme import loggers
from minerva_acme.experiments import config as experiment_config

_FILM = "evaluation/video"


class RunLogs(NamedTuple):
    """The logs of a run."""

    actor: loggers.Logger  # a row for each training episode
    learner: loggers.Logger  # a row every `log_period_seconds`
    evaluator: loggers.Logger  # a row for each evaluation
    newest_row: loggers.NewestRow  # of the learner
    film_writers: list[Callable[..., None]]

    def write_film(self, gif: bytes, *, step: int) -> None:
        """Shows the film of an evaluation, an animated gif, at an environment step."""
        for write in self.film_writers:
            write(gif=gif, step=step)


@contextlib.contextmanager
def open_logs(config: experiment_config.ExperimentConfig) -> Iterator[RunLogs]:
    """Opens the logs in the run's folder, and closes them at the end of the `with` block.

    Raises:
        ValueError: Weights & Biases does not start; the message says what to do.
    """
    directory = pathlib.Path(config.directory)
    newest_row = loggers.NewestRow()
    steps_keys = {"actor": "actor_steps", "learner": "learner_steps", "evaluator": "actor_steps"}
    others: dict[str, list[loggers.Logger]] = {"actor": [], "learner": [newest_row], "evaluator": []}
    film_writers: list[Callable[..., None]] = []
    with contextlib.ExitStack() as resources:
        if config.tensorboard:
            folder = directory / "tensorboard"
            if config.description:
                loggers.write_description(folder, config.description)
            events = loggers.TensorBoardLogger(
                folder,
                "evaluator",
                steps_keys["evaluator"],
                group="evaluator",
                hyperparameters=_hyperparameters(config.description),
            )
            others["evaluator"].append(events)
            film_writers.append(functools.partial(events.write_film, _FILM))
        if config.wandb:
            wandb = resources.enter_context(loggers.WandbRun(directory, config=dict(config.description)))
            for label, steps_key in steps_keys.items():
                others[label].append(wandb.make_logger(label, steps_key))
            film_writers.append(
                functools.partial(wandb.write_film, _FILM, steps_key=f"evaluator/{steps_keys['evaluator']}")
            )
        opened = {
            label: resources.enter_context(
                loggers.make_default_logger(
                    directory,
                    label,
                    steps_key=steps_key,
                    terminal=False,
                    tensorboard=config.tensorboard and label != "evaluator",  # it has its own, above
                    others=others[label],
                    # Every episode and evaluation is a row; of learner steps there are too many.
                    time_delta=config.log_period_seconds if label == "learner" else 0.0,
                )
            )
            for label, steps_key in steps_keys.items()
        }
        yield RunLogs(newest_row=newest_row, film_writers=film_writers, **opened)


def _hyperparameters(description: Mapping[str, Any]) -> dict[str, Any]:
    """What distinguishes a run from others, by short names; the options may change when it resumes."""
    values = {
        name: value for name, value in description.items() if name not in ("hyperparameters", "options")
    }
    return {**values, **description.get("hyperparameters", {})}
