"""One action instead of a nest of them."""

from typing import Any

import dm_env
import numpy as np
import tree

from minerva_acme import specs, types
from minerva_acme.wrappers import transforms


class FlatActionWrapper(transforms.ActionTransformWrapper):
    """Lets an agent act with one array if the environment takes a nest of actions, or an array of other axes.

        the environment's actions            the agent's
        one in a nest                        that one
        floats of any shapes                 one vector of floats, with the same bounds
        discrete or bounded integers         one vector of integers, as for `MultiDiscrete`

    The order is the nest's: dicts by sorted key, each array row by row.
    """

    def __init__(self, environment: dm_env.Environment) -> None:
        """Wraps an environment.

        Raises:
            ValueError: Floats and integers are mixed, or an action has no bounds.
        """
        nest = environment.action_spec()
        leaves = tree.flatten(nest)
        if not _is_of_one_kind(leaves):
            raise ValueError(
                "`action_spec` must hold only floats or only integers, with bounds, to become one vector, "
                f"got {tree.map_structure(specs.describe, nest)}. Join them in your own wrapper."
            )
        spec = leaves[0]
        if len(leaves) > 1 or not _is_flat(spec):
            lows, highs = zip(*(map(np.ravel, specs.bounds(leaf)) for leaf in leaves), strict=True)
            low, high = np.concatenate(lows), np.concatenate(highs)
            spec = specs.BoundedArray(low.shape, low.dtype, low, high, name="action")
        super().__init__(environment, transform=_Split(nest, leaves), spec=spec)


def is_nested(nest: types.NestedSpec) -> bool:
    """Returns whether the wrapper is needed for actions of this spec, and can convert them."""
    return not _is_flat(nest) and _is_of_one_kind(tree.flatten(nest))


def _is_flat(nest: types.NestedSpec) -> bool:
    return isinstance(nest, specs.DiscreteArray) or (isinstance(nest, specs.Array) and len(nest.shape) == 1)


def _is_of_one_kind(leaves: list[specs.Array]) -> bool:
    kinds = {leaf.dtype.kind for leaf in leaves}
    are_bounded = all(isinstance(leaf, specs.BoundedArray) for leaf in leaves)
    return are_bounded and bool(leaves) and (kinds <= {"f"} or kinds <= {"i", "u"})


class _Split:
    """Splits one array into the nest."""

    def __init__(self, nest: types.NestedSpec, leaves: list[specs.Array]) -> None:
        self._nest, self._leaves = nest, leaves
        self._ends = np.cumsum([int(np.prod(leaf.shape)) for leaf in leaves])

    def __call__(self, action: Any) -> types.NestedArray:
        parts = np.split(np.ravel(action), self._ends[:-1])
        leaves = [
            part.reshape(leaf.shape).astype(leaf.dtype)
            for part, leaf in zip(parts, self._leaves, strict=True)
        ]
        return tree.unflatten_as(self._nest, leaves)
