"""How far a run has come."""

import types
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from minerva_acme import environments, loggers
from minerva_acme.experiments import evaluation, evaluator, parts
from minerva_acme.replay import backends

_MIN_METRICS_SECONDS = 0.5  # asking a replay server for its state takes about a millisecond


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


class Reporter:
    """Tells a callback how far the run has come."""

    def __init__(
        self, run: parts.Parts, evaluations: evaluator.Evaluator, on_progress: Callable[[Progress], None]
    ) -> None:
        """Reports nothing yet. Args: run, evaluations: what to report. on_progress: the callback."""
        self._run = run
        self._evaluations = evaluations
        self._on_progress = on_progress
        self._episode_return: float | None = None
        self._metrics: dict[str, float] = {}
        self._replay_memory = backends.describe_size(run.tables, run.config.replay)
        self._metrics_due = loggers.EverySeconds(max(run.config.log_period_seconds, _MIN_METRICS_SECONDS))

    def report(self, phase: str, episodes: Sequence[environments.EpisodeResult] = ()) -> None:
        """Calls the callback.

        Args:
            phase: what the run is doing: "train", "evaluate" or "save".
            episodes: training episodes that ended since the last report.
        """
        if episodes:
            self._episode_return = float(episodes[-1]["episode_return"])
        if self._metrics_due({}):
            self._metrics = self._read_metrics()
        latest = self._evaluations.latest
        self._on_progress(
            Progress(
                env_steps=self._run.env_steps,
                num_env_steps=self._run.config.num_env_steps,
                learner_steps=self._run.count("learner_steps"),
                last_episode_return=self._episode_return,
                last_evaluation=latest and latest[1],
                phase=phase,
                num_episodes=self._run.count("actor_episodes"),
                metrics=self._metrics,
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
