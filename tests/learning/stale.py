"""IMPALA next to PPO, with older and older weights, and with several actors.

    python -m tests.learning.stale --tasks catch hidden_cartpole --seeds 0 1 2    # Catch needs bsuite
    python -m tests.learning.stale --tasks lagging --seeds 0 1 2
    python -m tests.learning.stale --tasks actors --seeds 0 1 2

Each run has a folder and continues there if it was stopped. The rows of all finished runs are written to
`rows.csv`, in the form of `minerva_acme.results`.
"""

import collections
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import dm_env

from minerva_acme import builders, core, environments, types
from minerva_acme.agents import impala, ppo
from minerva_acme.results import rows

from . import memory


class Lagging(impala.IMPALALearner):
    """A learner whose weights reach the actor only after so many more steps."""

    lag = 0

    def __init__(self, **parts: Any) -> None:
        self._last: collections.deque[list[types.NestedArray]] = collections.deque(maxlen=self.lag + 1)
        super().__init__(**parts)

    def step(self) -> None:
        if not self._last:
            self._last.append(self.get_variables(["network"]))
        super().step()
        self._last.append(self.get_variables(["network"]))

    def poll_variables(
        self, names: Sequence[str], newer_than: int | None = None
    ) -> core.VersionedVariables | None:
        answer = super().poll_variables(names, newer_than)
        return answer and (answer._replace(values=self._last[0]) if self._last else answer)


def lagging(lag: int, corrected: bool) -> builders.AgentBuilder[Any]:
    """Returns IMPALA in one process, with an actor whose weights are `lag` learner steps old."""
    config = impala.IMPALAConfig(asynchronous=corrected, learning_rate=5e-3, anneal_learning_rate=False)
    builder = impala.IMPALABuilder(config)
    builder.learner_class = type("Lagging", (Lagging,), {"lag": lag})
    return builder


def catch(seed: int) -> dm_env.Environment:
    """Makes bsuite's Catch, whose observation is an image of 10 x 5 numbers."""
    from bsuite.environments import catch as bsuite_catch

    return environments.make_training_environment(bsuite_catch.Catch(seed=seed))


cartpole = functools.partial(environments.make_training_environment, "CartPole-v1")
HIDDEN = memory.TASKS["cartpole"]
IMPALA, PPO = impala.IMPALABuilder(impala.PRESETS["default"]), ppo.PPOBuilder(ppo.PRESETS["default"])
TASKS: Mapping[str, memory.Task] = {
    "catch": memory.Task("bsuite's Catch", catch, 100_000, {"impala": IMPALA, "ppo": PPO}),
    "hidden_cartpole": memory.Task(
        HIDDEN.env,
        HIDDEN.make_environment,
        100_000,
        {
            "impala": impala.IMPALABuilder(impala.PRESETS["memory"]),
            "ppo": ppo.PPOBuilder(ppo.PRESETS["memory"]),
        },
    ),
    "lagging": memory.Task(
        "CartPole-v1",
        cartpole,
        16_000,
        {
            f"{'corrected' if corrected else 'uncorrected'}_{lag}": lagging(lag, corrected)
            for lag in (0, 2, 8)
            for corrected in (True, False)
        },
    ),
    "actors": memory.Task(
        "CartPole-v1",
        cartpole,
        100_000,
        {f"actors_{number}": IMPALA for number in (1, 2, 4)},
        {f"actors_{number}": number for number in (1, 2, 4)},
    ),
}


def main(arguments: Sequence[str] | None = None) -> list[rows.Row]:
    """Trains, writes the rows after each run, and prints the last returns."""
    return memory.main(arguments, TASKS, "stale", __doc__)


if __name__ == "__main__":
    main()
