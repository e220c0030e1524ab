"""How far a run has come."""

import types
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from minerva_acme import counting, environments, loggers
from minerva_acme.experiments import config as experiment_config
from minerva_acme.experiments import evaluation, evaluator
from minerva_acme.replay import base as replay

_MIN_METRICS_SECONDS = 0.5  # asking a replay server for its state takes about a millisecond


class Counts(NamedTuple):
    """What a run has counted."""

    env_steps: int
    learner_steps: int
    num_episodes: int  # training episodes that ended


def read_counts(counter: counting.Counter) -> Counts:
    """Returns the counts of a run."""
    counts = counter.get_counts()
    return Counts(*(int(counts.get(name, 0)) for name in ("actor_steps", "learner_steps", "actor_episodes")))


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


class Reporter:
    """Tells a callback how far the run has come."""

    def __init__(
        self,
        config: experiment_config.ExperimentConfig,
        on_progress: Callable[[Progress], None],
        *,
        counter: counting.Counter,
        run_evaluator: evaluator.Evaluator,
        newest_row: loggers.NewestRow,
        client: replay.ReplayClient,
        tables: Sequence[str],
    ) -> None:
        """Reports nothing yet.

        Args:
            config: of the run.
            on_progress: the callback.
            counter: of the run.
            run_evaluator: has the latest evaluation.
            newest_row: has the learner's newest row.
            client: of the replay.
            tables: names of the replay's tables.
        """
        self._num_env_steps = config.num_env_steps
        self._on_progress = on_progress
        self._counter = counter
        self._evaluator = run_evaluator
        self._newest_row = newest_row
        self._client = client
        self._tables = tables
        self._metrics: dict[str, float] = {}
        self._metrics_due = loggers.EverySeconds(max(config.log_period_seconds, _MIN_METRICS_SECONDS))
        self._episode_return: float | None = None

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
        latest = self._evaluator.latest
        self._on_progress(
            Progress(
                num_env_steps=self._num_env_steps,
                last_episode_return=self._episode_return,
                last_evaluation=latest and latest[1],
                phase=phase,
                metrics=self._metrics,
                **read_counts(self._counter)._asdict(),
            )
        )

    def _read_metrics(self) -> dict[str, float]:
        infos = [self._client.table_info(table) for table in self._tables]
        inserted = sum(info.inserted for info in infos)
        return {
            **{name: value for name, value in self._newest_row.row.items() if not isinstance(value, str)},
            "replay/size": sum(info.size for info in infos),
            "replay/max_size": sum(info.max_size for info in infos),
            "replay/samples_per_insert": sum(info.sampled for info in infos) / max(inserted, 1),
        }
