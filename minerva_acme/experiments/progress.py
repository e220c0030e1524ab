"""The progress of a run, and the callbacks that receive it."""

import logging
import types
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from minerva_acme import environments, loggers
from minerva_acme.experiments import evaluator, parts
from minerva_acme.replay import backends
from minerva_acme.runs import evaluation, options

_logger = logging.getLogger(__name__)

_MIN_METRICS_SECONDS = 0.5  # asking a replay server for its state takes about a millisecond


class StopRun(Exception):
    """Raised by a callback to end the run, with the reason; a final evaluation and checkpoint follow."""


class Progress(NamedTuple):
    """The progress of a run."""

    env_steps: int
    num_env_steps: int  # of the whole run
    learner_steps: int
    last_episode_return: float | None  # the return of the last training episode
    last_evaluation: evaluation.Evaluation | None
    phase: str  # "train", "evaluate" or "save"
    num_episodes: int = 0  # training episodes that have ended
    # The learner's newest logged row and the state of replay, read every `log_period_seconds`.
    metrics: Mapping[str, float] = types.MappingProxyType({})
    replay_memory: str = ""  # in words: the memory that a full replay takes, and the free memory
    num_learner_steps: int = 0  # of the whole run, if it makes no environment steps
    metric: str = options.RETURN  # of evaluations, which chooses the best
    # For a distributed run: the state of each node in words, by name, and under `waits` the last status line.
    nodes: Mapping[str, str] = types.MappingProxyType({})

    @property
    def steps(self) -> int:
        """The steps made so far, out of `num_steps`."""
        return self.env_steps if self.num_env_steps else self.learner_steps

    @property
    def num_steps(self) -> int:
        """The environment steps of the whole run, or its learner steps if it makes no environment steps."""
        return self.num_env_steps or self.num_learner_steps


Callback: TypeAlias = Callable[[Progress], object]
"""Called repeatedly with the progress of a run; raises `StopRun` to end it. Its return value is ignored."""


class Callbacks:
    """Callbacks that are called with the progress of a run, in order."""

    stopped_by: str | None = None
    """The reason why a callback ended the run, or None."""

    def __init__(self, *callbacks: Callback) -> None:
        """Calls nothing yet."""
        self._callbacks = callbacks

    def __call__(self, progress: Progress) -> None:
        """Calls all callbacks; notes the reason if one raises `StopRun`."""
        for callback in self._callbacks:
            try:
                callback(progress)
            except StopRun as request:
                if self.stopped_by is None:
                    self.stopped_by = str(request) or "a callback"
                    _logger.info("stopped at %d steps: %s", progress.steps, self.stopped_by)


class Reporter:
    """Reports the progress of a run in this process to its callbacks."""

    def __init__(self, run: parts.Parts, evaluations: evaluator.Evaluator, callbacks: Callbacks) -> None:
        """Reports nothing yet.

        Args:
            run: The run to report on.
            evaluations: The run's evaluations.
            callbacks: The callbacks to report to.
        """
        self._run = run
        self._evaluations = evaluations
        self._callbacks = callbacks
        self._episode_return: float | None = None
        self._metrics: dict[str, float] = {}
        # A run without environment steps writes nothing to it.
        plays = run.config.num_env_steps > 0
        self._replay_memory = backends.describe_size(run.tables, run.config.replay) if plays else ""
        self._metrics_due = loggers.EverySeconds(max(run.config.log_period_seconds, _MIN_METRICS_SECONDS))

    def report(self, phase: str, episodes: Sequence[environments.EpisodeResult] = ()) -> None:
        """Calls all callbacks.

        Args:
            phase: The phase of the run: "train", "evaluate" or "save".
            episodes: The training episodes that have ended since the last report.
        """
        if episodes:
            self._episode_return = float(episodes[-1]["episode_return"])
        if self._metrics_due():
            self._metrics = self._read_metrics()
        latest = self._evaluations.latest
        self._callbacks(
            Progress(
                env_steps=self._run.env_steps,
                num_env_steps=self._run.config.num_env_steps,
                learner_steps=self._run.count("learner_steps"),
                last_episode_return=self._episode_return,
                last_evaluation=latest and latest[1],
                phase=phase,
                num_episodes=self._run.count("actor_episodes"),
                metrics=self._metrics,
                num_learner_steps=self._run.config.num_learner_steps,
                replay_memory=self._replay_memory,
                metric=self._run.config.metric,
            )
        )

    def _read_metrics(self) -> dict[str, float]:
        infos = [self._run.client.table_info(table.name) for table in self._run.tables]
        row = self._run.logs.newest_row.row
        return {
            **{name: value for name, value in row.items() if not isinstance(value, str)},
            "replay/size": sum(info.size for info in infos),
            "replay/max_size": sum(info.max_size for info in infos),
            "replay/samples_per_insert": sum(info.sampled for info in infos)
            / max(sum(info.inserted for info in infos), 1),
        }
