"""Checkpoints: folders that are complete or do not exist.

<directory>/000020000/state.pt     everything but the replay
<directory>/000020000/replay/      the files of the replay store, if replay was saved
"""

import contextlib
import logging
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import torch

from minerva_acme.replay import base as replay

_logger = logging.getLogger(__name__)

_STATE_FILE = "state.pt"
_REPLAY_FOLDER = "replay"


class Checkpointer:
    """Writes and finds the checkpoints of one run."""

    def __init__(self, directory: str | os.PathLike[str], keep: int = 2) -> None:
        """Args: directory: of the checkpoints; made if needed. keep: how many of the newest to keep, >= 1."""
        if keep < 1:
            raise ValueError(f"`keep` must be >= 1 checkpoint, got {keep}.")
        self._directory = pathlib.Path(directory)
        self._keep = keep
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            for unfinished in self._directory.glob(".unfinished-*"):
                shutil.rmtree(unfinished)
        except OSError as error:
            raise OSError(
                f"Checkpoints need a folder that can be written to, but {self._directory} is none: "
                f"{error.strerror}. Choose another directory for the run, or check the permissions there."
            ) from error

    def save(self, env_steps: int, state: Any, replay_files: str | os.PathLike[str] | None = None) -> None:
        """Writes a checkpoint and deletes all but the newest ones.

        Args:
            env_steps: names the checkpoint; a checkpoint of the same number is replaced.
            state: what `torch.load(weights_only=True)` can read, see `core.Saveable`.
            replay_files: a folder on the same disk that is moved into the checkpoint.

        Raises:
            OSError: it could not be written. The older checkpoints stay.
        """
        final = self._directory / f"{env_steps:09d}"
        unfinished = self._directory / f".unfinished-{env_steps:09d}"
        try:
            _write(unfinished, state, replay_files)
            if final.exists():
                shutil.rmtree(final)
            unfinished.rename(final)
        except (OSError, RuntimeError) as error:  # torch wraps the first in the second
            shutil.rmtree(unfinished, ignore_errors=True)
            cause = error.__context__ if isinstance(error.__context__, OSError) else error
            reason = getattr(cause, "strerror", None) or cause
            newest = self.latest()
            raise OSError(
                f"The checkpoint {final} could not be written: {reason}. Free some "
                "space or check the permissions there, then start the run again: it resumes from "
                f"{'its beginning' if newest is None else f'step {int(newest.name)}'}."
            ) from error
        for old in _finished(self._directory)[: -self._keep]:
            shutil.rmtree(old)

    def latest(self) -> pathlib.Path | None:
        """The newest checkpoint, or None."""
        return latest(self._directory)


def _write(folder: pathlib.Path, state: Any, replay_files: str | os.PathLike[str] | None) -> None:
    folder.mkdir()
    with open(folder / _STATE_FILE, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    if replay_files is not None:
        (folder / _REPLAY_FOLDER).mkdir()
        source = pathlib.Path(replay_files)
        source.rename(folder / _REPLAY_FOLDER / source.name)


def latest(directory: pathlib.Path) -> pathlib.Path | None:
    """The newest checkpoint in a folder that another process may be writing to, or None."""
    return next(iter(_finished(directory)[::-1]), None)


def find(path: pathlib.Path) -> pathlib.Path:
    """The newest checkpoint in a run's folder, or the folder itself if it is a checkpoint.

    Raises:
        ValueError: it is neither.
    """
    if (path / _STATE_FILE).exists():
        return path
    checkpoint = latest(path / "checkpoints")
    if checkpoint is None:
        raise ValueError(f"{path} holds no checkpoint yet. Train it first: minerva train ...")
    return checkpoint


@contextlib.contextmanager
def explain_misfit(checkpoint: pathlib.Path) -> Iterator[None]:
    """Wraps the restoring of parts: says that the checkpoint is of other parts than these.

    Raises:
        ValueError: in place of what the parts raise. Their own ValueErrors say more and stay.
    """
    try:
        yield
    except (replay.ReplayError, ValueError):
        raise
    except Exception as error:  # whatever a file of other contents can lead to
        missing = isinstance(error, KeyError) and len(error.args) == 1
        found = f"{error} is missing" if missing else str(error)
        # torch lists every difference.
        found = " ".join(line.strip() for line in found.splitlines()[:2]).removesuffix(".")
        raise ValueError(
            f"{checkpoint} must be of this agent, config and environment, got another's ({found}). Use the "
            "builder that it was trained with, or another folder."
        ) from error


def _finished(directory: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in directory.glob("*") if path.name.isdigit())


def load_state(checkpoint: pathlib.Path, device: str = "cpu") -> Any:
    """Loads the state of a checkpoint. No code stored in it is executed."""
    return torch.load(checkpoint / _STATE_FILE, map_location=device, weights_only=True)


def replay_folder(checkpoint: pathlib.Path) -> pathlib.Path | None:
    """The folder of a checkpoint's replay, or None if it was saved without replay."""
    folder = checkpoint / _REPLAY_FOLDER
    return next(iter(folder.iterdir()), None) if folder.exists() else None
