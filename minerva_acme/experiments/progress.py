"""How far a run has come."""

import logging
import types
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from minerva_acme import environments, loggers
from minerva_acme.experiments import evaluator, parts
from minerva_acme.replay import backends
from minerva_acme.runs import evaluation

_logger = logging.getLogger(__name__)

_MIN_METRICS_SECONDS = 0.5  # asking a replay server for its state takes about a millisecond


class StopRun(Exception):
    """Raised by a callback to end the run, with the reason; the last evaluation and checkpoint are made."""


class Progress(NamedTuple):
    """How far a run has come."""

    env_steps: int
    num_env_steps: int  # of the whole run
    learner_steps: int
    last_episode_return: float | None  # of the last training episode
    last_evaluation: evaluation.Evaluation | None
    phase: str  # "train", "evaluate" or "save"
    num_episodes: int = 0  # training episodes that ended
    # The learner's newest logged row and the state of replay, read every `log_period_seconds`.
    metrics: Mapping[str, float] = types.MappingProxyType({})
    replay_memory: str = ""  # how much replay takes when it is full, and how much is free, in words
    num_learner_steps: int = 0  # of the whole run, where it makes no environment steps
    # What the processes of a distributed run do, in words, by the node's name; and who waits, by `waits`.
    nodes: Mapping[str, str] = types.MappingProxyType({})

    @property
    def steps(self) -> int:
        """Steps made so far, of `num_steps`: environment steps, or learner steps where there are none."""
        return self.env_steps if self.num_env_steps else self.learner_steps

    @property
    def num_steps(self) -> int:
        """Steps of the whole run."""
        return self.num_env_steps or self.num_learner_steps


Callback: TypeAlias = Callable[[Progress], object]
"""Sees how far a run has come, again and again; raises `StopRun` to end it. What it returns is ignored."""


class Callbacks:
    """Callbacks that are told how far a run has come, in order, until one of them ends it."""

    stopped_by: str | None = None
    """Why a callback ended the run; None: it did not."""

    def __init__(self, *callbacks: Callback) -> None:
        """Calls nothing yet."""
        self._callbacks = callbacks

    def __call__(self, progress: Progress) -> None:
        """Calls each of them."""
        for callback in self._callbacks:
            try:
                callback(progress)
            except StopRun as request:
                if self.stopped_by is None:
                    self.stopped_by = str(request) or "a callback"
                    _logger.info("stopped at %d steps: %s", progress.steps, self.stopped_by)


class Reporter:
    """Tells callbacks how far a run in this process has come."""

    def __init__(self, run: parts.Parts, evaluations: evaluator.Evaluator, callbacks: Callbacks) -> None:
        """Reports nothing yet. Args: run, evaluations: what to report. callbacks: to whom."""
        self._run = run
        self._evaluations = evaluations
        self._callbacks = callbacks
        self._episode_return: float | None = None
        self._metrics: dict[str, float] = {}
        self._replay_memory = backends.describe_size(run.tables, run.config.replay)
        self._metrics_due = loggers.EverySeconds(max(run.config.log_period_seconds, _MIN_METRICS_SECONDS))

    def report(self, phase: str, episodes: Sequence[environments.EpisodeResult] = ()) -> None:
        """Calls the callbacks, each of them.

        Args:
            phase: what the run is doing: "train", "evaluate" or "save".
            episodes: training episodes that ended since the last report.
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
