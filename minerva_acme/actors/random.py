"""Random actions."""

from typing import Any

import numpy as np
import tree

from minerva_acme import core, specs, types
from minerva_acme.actors import feed_forward


class RandomActor(feed_forward.FeedForwardActor, core.Saveable):
    """An actor that acts uniformly at random within the action spec: the baseline for any agent."""

    def __init__(self, action_spec: types.NestedSpec, *, seed: int) -> None:
        """Initialises the actor.

        Args:
            action_spec: The spec of actions, or a nest of specs, discrete or bounded; bounds are inclusive.
            seed: The seed of the actions.

        Raises:
            ValueError: An action has no finite bounds, or is not a number.
        """
        for path, spec in tree.flatten_with_path(action_spec):
            _check_bounded(specs.leaf_name("action_spec", path), spec)
        super().__init__(policy=self._act)
        self._action_spec = action_spec
        self._random = np.random.default_rng(seed)

    def save(self) -> core.State:
        return {"random": self._random.bit_generator.state}

    def restore(self, state: core.State) -> None:
        self._random.bit_generator.state = state["random"]

    def _act(self, observation: types.NestedArray) -> feed_forward.PolicyOutput:
        return feed_forward.PolicyOutput(tree.map_structure(self._draw, self._action_spec))

    def _draw(self, spec: specs.BoundedArray) -> Any:
        low, high = specs.bounds(spec)
        if not np.issubdtype(spec.dtype, np.floating):
            return self._random.integers(low, high, size=spec.shape, endpoint=True, dtype=spec.dtype)
        share = self._random.random(spec.shape)
        # This form does not overflow for the widest bounds; rounding to the spec's dtype may exceed them.
        action = (low * (1.0 - share) + high * share).astype(spec.dtype)
        return np.clip(action, low, high)


def _check_bounded(name: str, spec: Any) -> None:
    if not specs.is_bounded(spec):
        raise ValueError(
            f"RandomActor needs `{name}` to be discrete or to have finite bounds, got "
            f"{specs.describe(spec)}. Bound it in the environment's action_spec."
        )
