"""Rows in Weights & Biases."""

import io
import os
import pathlib
import uuid
from collections.abc import Mapping
from typing import Any

from minerva_acme import core
from minerva_acme.loggers import base


class WandbRun(core.Closeable):
    """A context manager for a run of Weights & Biases, to which its loggers write.

    Without a login or a network, set `WANDB_MODE=offline` to keep everything in `<directory>/wandb`;
    `wandb sync` uploads it later. If a run is resumed in the same folder, its run of Weights & Biases is
    resumed too.
    """

    def __init__(self, directory: str | os.PathLike[str], *, config: Mapping[str, Any]) -> None:
        """Starts the run, or resumes it.

        Args:
            directory: The run's folder, whose name becomes the run's name.
            config: The description of the run, such as its hyperparameters.

        Raises:
            ValueError: wandb is not installed, or does not start; the message says what to do.
        """
        try:
            import wandb
        except ImportError as error:
            if isinstance(error, ModuleNotFoundError) and error.name == "wandb":
                found, fix = "is not installed", "pip install 'minerva-acme[wandb]'"
            else:
                found, fix = f"cannot be imported ({error})", "pip install --force-reinstall wandb"
            raise ValueError(
                f"Logging to Weights & Biases needs wandb, which {found}: {fix}, or leave wandb out of --log."
            ) from error
        folder = pathlib.Path(directory)
        (folder / "wandb").mkdir(parents=True, exist_ok=True)
        identity = folder / "wandb" / "run-id"
        if not identity.exists():
            identity.write_text(uuid.uuid4().hex[:12], encoding="utf-8")
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "minerva-acme"),
                dir=folder,
                name=folder.resolve().name,
                id=identity.read_text(encoding="utf-8"),
                resume="allow",
                config=dict(config),
            )
        except wandb.Error as error:
            raise ValueError(
                f"Weights & Biases did not start: {error} Log in with wandb login, or set WANDB_MODE=offline."
            ) from error

    def make_logger(self, label: str, steps_key: str) -> base.Logger:
        """Makes a logger whose rows appear as `<label>/<name>`, drawn against `<label>/<steps_key>`."""
        self._run.define_metric(f"{label}/*", step_metric=f"{label}/{steps_key}")
        return _WandbLogger(self._run, label)

    def write_film(self, name: str, gif: bytes, *, steps_key: str, step: int) -> None:
        """Logs an animated gif as `name`, drawn against `steps_key` with the value `step`."""
        import wandb

        self._run.define_metric(name, step_metric=steps_key)
        self._run.log({name: wandb.Video(io.BytesIO(gif), format="gif"), steps_key: step})

    def close(self) -> None:
        """Waits until everything is uploaded or written; closing twice is allowed."""
        self._run.finish()


class _WandbLogger(base.Logger):
    def __init__(self, run: Any, label: str) -> None:
        self._run = run
        self._label = label

    def write(self, values: Mapping[str, Any]) -> None:
        self._run.log({f"{self._label}/{name}": value for name, value in base.to_plain(values).items()})

    def close(self) -> None:
        """Does nothing: the run's owner closes it."""
