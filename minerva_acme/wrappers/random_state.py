"""Saving and restoring the random generators of environments."""

from typing import Any

import dm_env
import numpy as np

from minerva_acme import core, types
from minerva_acme.wrappers import base


class DmControlRandomState(base.EnvironmentWrapper, core.Saveable):
    """Saves and restores the random generator of a dm_control environment, of the suite or of composer.

    Only the generator is saved, not the physics. If it is saved at the end of an episode and restored into
    an environment made in the same way with the same seed, the next episodes are the same as without the
    interruption. Restoring drops an episode in progress.
    """

    def __init__(self, environment: dm_env.Environment) -> None:
        super().__init__(environment)
        self._reset_next_step = False

    def reset(self) -> dm_env.TimeStep:
        self._reset_next_step = False
        return self._environment.reset()

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        if self._reset_next_step:
            return self.reset()
        return self._environment.step(action)

    def seed(self, seed: int) -> None:
        """Seeds the next episode and all later ones.

        Args:
            seed: The seed, in [0, 2**32). Random numbers that a task drew when it was made do not change.
        """
        self._random().seed(seed)
        self._reset_next_step = True

    def save(self) -> core.State:
        return save_generator(self._random())

    def restore(self, state: core.State) -> None:
        restore_generator(self._random(), state)
        self._reset_next_step = True

    def _random(self) -> np.random.RandomState:
        # dm_env has neither; the environments of dm_control's suite have the first, composer's the second.
        environment: Any = self._environment
        task = environment.task
        random: np.random.RandomState = task.random if hasattr(task, "random") else environment.random_state
        return random


def save_generator(generator: Any) -> core.State:
    """Returns the state of a numpy `Generator` or `RandomState`, or None for anything else."""
    if isinstance(generator, np.random.RandomState):
        return to_plain(generator.get_state(legacy=False))
    return to_plain(generator.bit_generator.state) if isinstance(generator, np.random.Generator) else None


def restore_generator(generator: Any, state: core.State) -> bool:
    """Restores a state that `save_generator` returned, into a generator of the same kind.

    Returns:
        Whether the kind is the same. If not, nothing is changed.

    Raises:
        ValueError: The two have different bit generators.
    """
    is_legacy = "has_gauss" in state
    if is_legacy and isinstance(generator, np.random.RandomState):
        generator.set_state(to_numpy(state))
    elif not is_legacy and isinstance(generator, np.random.Generator):
        generator.bit_generator.state = to_numpy(state)
    else:
        return False
    return True


def to_plain(state: Any) -> Any:
    """Returns the state of a numpy bit generator with lists and Python numbers instead of numpy's."""
    if isinstance(state, dict):
        return {key: to_plain(value) for key, value in state.items()}
    if isinstance(state, np.ndarray | np.generic):
        return state.tolist()
    return state


def to_numpy(state: Any) -> Any:
    """Undoes `to_plain`.

    Raises:
        ValueError: A list does not hold whole numbers.
    """
    if isinstance(state, dict):
        return {key: to_numpy(value) for key, value in state.items()}
    if not isinstance(state, list):
        return state
    try:
        return np.asarray(state, dtype=np.uint64)
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(
            f"A saved random state must be made of whole numbers, got others ({error}). Resume from another "
            "checkpoint."
        ) from error
