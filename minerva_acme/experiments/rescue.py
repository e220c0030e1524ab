"""Saves runs that are ended by an error."""

import contextlib
import logging
from collections.abc import Iterator

from minerva_acme.environments import batched_check
from minerva_acme.experiments import parts, saver
from minerva_acme.replay import base as replay

_logger = logging.getLogger(__name__)


class Rescue:
    """Saves a run that an error ends, as for a stop request, if its state is consistent.

    A step of the environment is either observed and counted, or neither: after an error in an environment, an
    observer, an evaluation or a callback, the run can be saved. An error in the middle of a learner step may
    leave that half done, an error of the replay may leave some writes missing, and wrong steps of a batched
    environment, which are found late, may be in replay. Then nothing is saved, and the newest checkpoint
    remains.
    """

    def __init__(self) -> None:
        """Saves nothing yet."""
        self._error: Exception | SystemExit | None = None
        self._half_done: str | None = None

    @contextlib.contextmanager
    def original_error(self) -> Iterator[None]:
        """Wraps the closing of a run's parts, which may fail because of the error that ended the run.

        Raises:
            Exception: The error that ended the run, if there was one.
        """
        try:
            yield
        except Exception as error:
            if self._error is None or error is self._error:
                raise
            _logger.warning("closing the run after the error failed too: %r", error)
        if self._error is not None:
            raise self._error

    @contextlib.contextmanager
    def save_on_error(self, run: parts.Parts, checkpoints: saver.Saver) -> Iterator[None]:
        """Wraps training: saves before an error is raised. Errors of that save are only logged.

        It also saves before a callback or an observer that calls `sys.exit` ends the program.
        """
        try:
            yield
        except (Exception, SystemExit) as error:
            self._error = error
            self._save(error, run, checkpoints)
            raise

    @contextlib.contextmanager
    def not_in(self, what: str) -> Iterator[None]:
        """Wraps code that an error may leave half done, so that nothing is saved after the error."""
        try:
            yield
        except (Exception, SystemExit):
            self._half_done = what
            raise

    def _save(self, error: BaseException, run: parts.Parts, checkpoints: saver.Saver) -> None:
        half_done = self._half_done
        if isinstance(error, replay.ReplayError):
            half_done = "writing to replay"
        elif isinstance(error, batched_check.LateSpecError):
            half_done = "steps that are wrong"
        kind, steps = type(error).__name__, run.steps
        if half_done is not None:
            outcome = f"in the middle of {half_done}, so nothing is saved"
        elif steps == checkpoints.saved_at:
            outcome = "with nothing new to save"
        else:
            try:
                checkpoints.save(after_error=True)
                outcome = "and the run is saved"
            except Exception as second:
                outcome = f"and saving failed too: {second}"
        newest = run.checkpointer.latest()
        resumes = "there is no checkpoint" if newest is None else f"the run resumes from {newest}"
        _logger.warning("%s after %d steps, %s; %s.", kind, steps, outcome, resumes)
