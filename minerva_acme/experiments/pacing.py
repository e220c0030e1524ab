"""The pace of the learner in a run where one thread plays and learns."""

import bisect
import logging

from minerva_acme import core
from minerva_acme.experiments import parts, signals
from minerva_acme.replay import base as replay

_logger = logging.getLogger(__name__)

_MOST_STEPS = 10**12  # more than any run makes
_WAY_OUT = (
    "Resume from another checkpoint, with `resume_from` or --checkpoint; 'best' usually has no replay and "
    "fills a new one."
)


class Pacer(core.Saveable):
    """Makes the learner keep up with the items written to replay."""

    def __init__(self, run: parts.Parts) -> None:
        """Learns nothing yet.

        Args:
            run: The run, with its builder, learner, actor and adders.
        """
        self._run = run
        # Both are counted since the replay was empty: a run that resumes without its replay starts from 0.
        self._inserted_before = 0  # items, by earlier processes
        self._learned = 0  # learner steps
        self._has_sampled = False
        self._warn_if_nothing_is_learned()

    def learn(self, stop: signals.StopRequest, *, without_playing: int = 0) -> None:
        """Makes the learner steps that are due, until a stop is requested.

        Args:
            stop: The stop request.
            without_playing: The number of steps that are due in a run without environment steps.

        Raises:
            ValueError: The dataset has ended.
            ReplayDeadlock: The learner needs items that replay does not hold and that nothing will write.
        """
        if self._run.config.num_env_steps:
            due = self._run.config.builder.learner_steps_due(self._num_inserted())
        else:
            due = self._learned + without_playing
        if self._learned >= due:
            return
        try:
            if not self._has_sampled:
                # The learner waits until replay holds enough items. Only this thread can send those that are
                # still buffered in the adders.
                for adder in self._run.adders:
                    adder.flush()
                self._has_sampled = True
            while self._learned < due and not stop:
                with self._run.counter.at_least_once("learner_steps"):  # by a learner that counts nothing
                    self._run.learner.step()
                self._learned += 1
        except replay.ReplayStopped:
            pass
        except StopIteration as error:
            raise ValueError(
                f"`make_dataset` must return an endless iterator, got one that ended after "
                f"{self._learned} batches. Start again inside the iterator, as `itertools.cycle` does."
            ) from error
        except replay.ReplayDeadlock as error:
            raise self._explain(error, due) from error
        self._run.actor.update()

    def save(self) -> core.State:
        sizes = {info.name: info.size for info in self._table_infos()}
        return {"inserted": self._num_inserted(), "learned": self._learned, "replay_sizes": sizes}

    def restore(self, state: core.State) -> None:
        """Restores the counts. Call it only if the run's replay is restored too.

        If several processes wrote the replay, all learner steps that are due are assumed to have been made.

        Raises:
            ReplayError: Items of the replay are missing.
        """
        if "learned" not in state:
            self._inserted_before = sum(info.inserted for info in self._table_infos())
            self._learned = self._run.config.builder.learner_steps_due(self._inserted_before)
            return
        for info in self._table_infos():
            size = state["replay_sizes"][info.name]
            if info.size < size:
                raise replay.ReplayError(
                    f"Table '{info.name}' was restored with {info.size} items, but held {size} when the "
                    f"checkpoint was written. {_WAY_OUT}"
                )
        self._inserted_before, self._learned = state["inserted"], state["learned"]

    def _table_infos(self) -> list[replay.TableInfo]:
        # Without the tables whose items are removed after sampling, which may happen at any time.
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
                "needs %s at least. Raise `num_env_steps`, or lower the length of the agent's rollouts "
                "(`rollout_steps`) or the number of items that its replay must hold first "
                "(`min_replay_size`).",
                f"{num_env_steps:,}",
                f"{needed:,}" if needed < _MOST_STEPS else "more than any run makes",
            )

    def _explain(self, error: replay.ReplayDeadlock, due: int) -> replay.ReplayDeadlock:
        """Returns the error with the counts of the run and the way out."""
        return replay.ReplayDeadlock(
            f"{error} The run has made {self._learned} of {due} learner steps that are due, with "
            f"{self._num_inserted()} items written, {self._inserted_before} of them before it was resumed. "
            + (
                f"If items of the checkpoint's replay were lost: {_WAY_OUT}"
                if self._inserted_before
                else "The run does not play (`num_env_steps` 0), so it needs recorded episodes (`dataset`), "
                "or a builder whose `make_dataset` returns batches from elsewhere."
                if not self._run.config.num_env_steps
                else "`learner_steps_due` of the builder must count a step only if the table's rate limiter "
                "allows its samples."
            )
        )

    def _num_inserted(self) -> int:
        return self._inserted_before + sum(adder.num_inserted for adder in self._run.adders)
