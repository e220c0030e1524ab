"""When the learner steps, in a run where one thread plays and learns."""

import bisect
import logging

from minerva_acme import core
from minerva_acme.experiments import parts, signals
from minerva_acme.replay import base as replay

_logger = logging.getLogger(__name__)

_MOST_STEPS = 10**12  # of any run
_WAY_OUT = (
    "Resume from another checkpoint, with `resume_from` or --checkpoint; 'best' mostly has no replay and "
    "fills a new one."
)


class Pacer(core.Saveable):
    """Keeps the learner up with what was written to replay."""

    def __init__(self, run: parts.Parts) -> None:
        """Learns nothing yet. Args: run: has a builder, a learner, an actor and adders."""
        self._run = run
        # Both counted since the replay was empty: a run that resumes without its replay starts from 0.
        self._inserted_before = 0  # items, by earlier processes
        self._learned = 0  # learner steps
        self._has_sampled = False
        self._warn_if_nothing_is_learned()

    def learn(self, stop: signals.StopRequest, *, without_playing: int = 0) -> None:
        """Makes the learner steps that are due, except those that are left when a stop is requested.

        Args:
            stop: the request.
            without_playing: how many are due in a run that makes no environment steps.

        Raises:
            ValueError: the dataset has ended.
            ReplayDeadlock: replay does not hold what the learner needs, and nobody would ever write it.
        """
        if self._run.config.num_env_steps:
            due = self._run.config.builder.learner_steps_due(self._num_inserted())
        else:
            due = self._learned + without_playing
        if self._learned >= due:
            return
        try:
            if not self._has_sampled:
                # The learner waits until replay holds enough. Only this thread can send what is still
                # buffered in the adders.
                for adder in self._run.adders:
                    adder.flush()
                self._has_sampled = True
            while self._learned < due and not stop:
                self._run.learner.step()
                self._learned += 1
        except replay.ReplayStopped:
            pass
        except StopIteration as error:
            raise ValueError(
                f"`make_dataset` must return an iterator without an end, got one that ended after "
                f"{self._learned} batches. Begin it anew in the iterator, as `itertools.cycle` does."
            ) from error
        except replay.ReplayDeadlock as error:
            raise self._explain(error, due) from error
        self._run.actor.update()

    def save(self) -> core.State:
        sizes = {info.name: info.size for info in self._table_infos()}
        return {"inserted": self._num_inserted(), "learned": self._learned, "replay_sizes": sizes}

    def restore(self, state: core.State) -> None:
        """Restores the counts; only for a run whose replay is restored too.

        Of a replay that several processes wrote, the learner is taken to have made the steps that are due.

        Raises:
            ReplayError: items of its replay are missing.
        """
        if "learned" not in state:
            self._inserted_before = sum(info.inserted for info in self._table_infos())
            self._learned = self._run.config.builder.learner_steps_due(self._inserted_before)
            return
        for info in self._table_infos():
            size = state["replay_sizes"][info.name]
            if info.size < size:
                raise replay.ReplayError(
                    f"Table '{info.name}' came back with {info.size} items, but held {size} when the "
                    f"checkpoint was written. {_WAY_OUT}"
                )
        self._inserted_before, self._learned = state["inserted"], state["learned"]

    def _table_infos(self) -> list[replay.TableInfo]:
        # Without the tables whose items leave when they are sampled, which may happen at any time.
        tables = [table for table in self._run.tables if not table.max_times_sampled]
        return [self._run.client.table_info(table.name) for table in tables]

    def _warn_if_nothing_is_learned(self) -> None:
        num_env_steps, builder = self._run.config.num_env_steps, self._run.config.builder

        def learns_by(steps: int) -> bool:
            return builder.learner_steps_due(builder.max_inserted(steps)) > 0

        if num_env_steps and not learns_by(num_env_steps):
            needed = bisect.bisect_left(range(_MOST_STEPS), True, key=learns_by)
            _logger.warning(
                "Nothing will be learned: the run makes %s environment steps, and the first learner step "
                "needs %s at least. Raise `num_env_steps`, or lower the steps of the agent's rollout "
                "(`rollout_steps`) or the items that its replay must hold first (`min_replay_size`).",
                f"{num_env_steps:,}",
                f"{needed:,}" if needed < _MOST_STEPS else "more than any run makes",
            )

    def _explain(self, error: replay.ReplayDeadlock, due: int) -> replay.ReplayDeadlock:
        """Says what the run believes that replay holds."""
        return replay.ReplayDeadlock(
            f"{error} The run has made {self._learned} of {due} learner steps that are due, with "
            f"{self._num_inserted()} items written, {self._inserted_before} of them before it was resumed. "
            + (
                f"If items of the checkpoint's replay were lost: {_WAY_OUT}"
                if self._inserted_before
                else "Nothing is played (`num_env_steps` 0), so that `make_dataset` must return batches from "
                "elsewhere."
                if not self._run.config.num_env_steps
                else "`learner_steps_due` of the builder must ask for a step only where the table's rate "
                "limiter lets its samples go."
            )
        )

    def _num_inserted(self) -> int:
        return self._inserted_before + sum(adder.num_inserted for adder in self._run.adders)
