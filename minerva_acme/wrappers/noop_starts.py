"""Episodes that start at different moments."""

from collections.abc import Callable

import dm_env
import numpy as np

from minerva_acme import core, specs, types
from minerva_acme.wrappers import base, leafwise, random_state


class NoopStartsWrapper(base.EnvironmentWrapper, core.Saveable):
    """Begins each episode with a random number of hidden no-ops, from 0 to `max_noops`.

        environment     FIRST   MID r1   MID r2   MID r3   ..
        2 no-ops drawn                   FIRST    MID r3   ..

    The rewards of the no-ops are dropped. If the episode ends during them, the remaining no-ops are made in
    a new one.
    """

    def __init__(
        self,
        environment: dm_env.Environment,
        *,
        noop_action: types.NestedArray,
        max_noops: int,
        random: np.random.Generator,
    ) -> None:
        """Initialises the wrapper.

        Args:
            environment: The environment to wrap.
            noop_action: The action that does nothing, conforming to the action spec.
            max_noops: The largest number of no-ops, >= 0.
            random: Draws the number of no-ops.

        Raises:
            ValueError: `max_noops` is negative, or the action does not conform.
        """
        if max_noops < 0:
            raise ValueError(f"`max_noops` must be >= 0, got {max_noops}. Leave the wrapper out for none.")
        specs.check_conforms("noop_action", noop_action, environment.action_spec())
        super().__init__(environment)
        self._noop_action = noop_action
        self._max_noops = max_noops
        self._random = random

    def reset(self) -> dm_env.TimeStep:
        return self._start(super().reset())

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        timestep = super().step(action)
        # The environment resets by itself after LAST, and after it was seeded or restored.
        return self._start(timestep) if timestep.first() else timestep

    @property
    def seed(self) -> Callable[[int], None]:
        """Seeds the environment and the generator of the no-ops; only there if the environment has it."""
        seed_environment = self._environment.seed  # type: ignore[attr-defined]

        def seed_both(seed: int) -> None:
            seed_environment(seed)
            # Gymnasium's environments draw from `default_rng(seed)` too.
            self._random = np.random.default_rng([seed, *b"no-ops"])

        return seed_both

    def save(self) -> core.State:
        """Returns the state of the generator, and the environment's state if it can be saved."""
        return {
            "random": random_state.to_plain(self._random.bit_generator.state),
            "environment": core.save_if_saveable(self._environment),
        }

    def restore(self, state: core.State) -> None:
        """Restores a saved state; an open episode ends if the environment's `restore` ends it."""
        self._random.bit_generator.state = random_state.to_numpy(state["random"])
        core.restore_if_saved(self._environment, state["environment"])

    def _start(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        for _ in range(self._random.integers(self._max_noops, endpoint=True)):
            timestep = super().step(leafwise.copy(self._noop_action))
            if timestep.last():
                timestep = super().reset()
        return dm_env.restart(timestep.observation)
