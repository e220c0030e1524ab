"""When the learner steps in a run where one thread plays and learns."""

from collections.abc import Callable

from minerva_acme import core
from minerva_acme.experiments import playing, signals


class Pacer(core.Saveable):
    """Keeps the learner up with what was written to replay."""

    def __init__(
        self,
        *,
        learner: core.Learner,
        player: playing.Player,
        learner_steps_due: Callable[[int], int],
    ) -> None:
        """Learns nothing yet.

        Args:
            learner: makes the steps.
            player: writes to replay, and takes the new weights.
            learner_steps_due: as `AgentBuilder.learner_steps_due`.
        """
        self._learner = learner
        self._player = player
        self._learner_steps_due = learner_steps_due
        # Both counted since the replay was empty: a run that resumes without its replay starts from 0.
        self._inserted_before = 0  # by earlier processes
        self._learned = 0
        self._has_sampled = False

    @property
    def num_inserted(self) -> int:
        """Items written to the replay since it was empty."""
        return self._inserted_before + self._player.num_inserted

    def learn(self, stop: signals.StopRequest) -> None:
        """Makes the learner steps that are due; none of those left after a stop request."""
        due = self._learner_steps_due(self.num_inserted)
        if self._learned >= due:
            return
        if not self._has_sampled:
            # The learner waits until replay holds enough. Only this thread can send what is still
            # buffered in the adders.
            self._player.flush()
            self._has_sampled = True
        while self._learned < due and not stop:
            self._learner.step()
            self._learned += 1
        self._player.update_weights()

    def save(self) -> core.State:
        return {"inserted": self.num_inserted, "learned": self._learned}

    def restore(self, state: core.State) -> None:
        """Restores the counts; only for a run whose replay is restored too."""
        self._inserted_before, self._learned = state["inserted"], state["learned"]
