"""When the learner steps, in a run where one thread plays and learns."""

from minerva_acme import core
from minerva_acme.experiments import parts, signals


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
        """Makes the learner steps that are due, except those that are left when a stop is requested."""
        due = self._run.config.builder.learner_steps_due(self._num_inserted())
        if self._learned >= due:
            return
        if not self._has_sampled:
            # The learner waits until replay holds enough. Only this thread can send what is still
            # buffered in the adders.
            for adder in self._run.adders:
                adder.flush()
            self._has_sampled = True
        while self._learned < due and not stop:
            self._run.learner.step()
            self._learned += 1
        self._run.actor.update()

    def save(self) -> core.State:
        return {"inserted": self._num_inserted(), "learned": self._learned}

    def restore(self, state: core.State) -> None:
        """Restores the counts; only for a run whose replay is restored too."""
        self._inserted_before, self._learned = state["inserted"], state["learned"]

    def _num_inserted(self) -> int:
        return self._inserted_before + sum(adder.num_inserted for adder in self._run.adders)
