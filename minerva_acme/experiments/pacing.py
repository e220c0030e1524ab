"""When the learner steps, in a run where one thread plays and learns."""

from minerva_acme import core
from minerva_acme.experiments import parts, signals
from minerva_acme.replay import base as replay

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

    def learn(self, stop: signals.StopRequest) -> None:
        """Makes the learner steps that are due, except those that are left when a stop is requested.

        Raises:
            ReplayDeadlock: replay does not hold what the learner needs, and nobody would ever write it.
        """
        due = self._run.config.builder.learner_steps_due(self._num_inserted())
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
        except replay.ReplayDeadlock as error:
            raise self._explain(error, due) from error
        self._run.actor.update()

    def save(self) -> core.State:
        sizes = {info.name: info.size for info in self._table_infos()}
        return {"inserted": self._num_inserted(), "learned": self._learned, "replay_sizes": sizes}

    def restore(self, state: core.State) -> None:
        """Restores the counts; only for a run whose replay is restored too.

        Raises:
            ReplayError: items of its replay are missing.
        """
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

    def _explain(self, error: replay.ReplayDeadlock, due: int) -> replay.ReplayDeadlock:
        """Says what the run believes that replay holds."""
        return replay.ReplayDeadlock(
            f"{error} The run has made {self._learned} of {due} learner steps that are due, with "
            f"{self._num_inserted()} items written, {self._inserted_before} of them before it was resumed. "
            + (
                f"If items of the checkpoint's replay were lost: {_WAY_OUT}"
                if self._inserted_before
                else "`learner_steps_due` of the builder must ask for a step only where the table's rate "
                "limiter lets its samples go."
            )
        )

    def _num_inserted(self) -> int:
        return self._inserted_before + sum(adder.num_inserted for adder in self._run.adders)
