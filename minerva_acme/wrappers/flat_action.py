"""One action, or one of each kind, instead of a nest of them."""

import collections
from collections.abc import Sequence
from typing import Any

import dm_env
import numpy as np
import tree

from minerva_acme import specs, types
from minerva_acme.wrappers import transforms


class FlatActionWrapper(transforms.ActionTransformWrapper):
    """Lets an agent act with one vector, or one of each kind, if the environment takes another nest.

        the environment's actions            the agent's
        one in a nest                        that one
        floats of any shapes                 one vector of floats, with the same bounds
        discrete or bounded integers         one vector of integers, as for `MultiDiscrete`
        both kinds                           these two, a dict of `continuous` and `discrete`

    The order is the nest's: dicts by sorted key, each array row by row.
    """

    def __init__(self, environment: dm_env.Environment) -> None:
        """Wraps an environment.

        Raises:
            ValueError: An action has no bounds.
        """
        nest = environment.action_spec()
        leaves = tree.flatten(nest)
        if not _are_bounded(leaves):
            raise ValueError(
                "`action_spec` must hold floats and integers with bounds to become one vector of each, got "
                f"{tree.map_structure(specs.describe, nest)}. Bound them in the environment's action_spec."
            )
        groups = {"continuous": [leaf for leaf in leaves if _kind(leaf) == "continuous"]}
        groups["discrete"] = [leaf for leaf in leaves if _kind(leaf) == "discrete"]
        is_mixed = all(groups.values())
        spec: types.NestedSpec = leaves[0]
        if is_mixed:
            spec = {name: _joined(group, name) for name, group in groups.items()}
        elif len(leaves) > 1 or not _is_flat(spec):
            spec = _joined(leaves, "action")
        super().__init__(environment, transform=_Split(nest, leaves, is_mixed), spec=spec)


def is_nested(nest: types.NestedSpec) -> bool:
    """Returns whether the wrapper is needed for actions of this spec, and can convert them."""
    return not _is_flat(nest) and _are_bounded(tree.flatten(nest))


def _is_flat(nest: types.NestedSpec) -> bool:
    is_vector = isinstance(nest, specs.Array) and len(nest.shape) == 1
    return is_vector or isinstance(nest, specs.DiscreteArray) or specs.is_hybrid(nest)


def _are_bounded(leaves: list[specs.Array]) -> bool:
    return bool(leaves) and all(isinstance(leaf, specs.BoundedArray) and _kind(leaf) for leaf in leaves)


def _kind(leaf: specs.Array) -> str:
    return {"f": "continuous", "i": "discrete", "u": "discrete"}.get(leaf.dtype.kind, "")


def _joined(leaves: list[specs.BoundedArray], name: str) -> specs.BoundedArray:
    lows, highs = zip(*(map(np.ravel, specs.bounds(leaf)) for leaf in leaves), strict=True)
    low, high = np.concatenate(lows), np.concatenate(highs)
    return specs.BoundedArray(low.shape, low.dtype, low, high, name=name)


def places(leaves: Sequence[specs.Array]) -> list[tuple[str, slice]]:
    """Returns the place of each leaf of a nest, as its kind and its numbers in the array of that kind."""
    found: list[tuple[str, slice]] = []
    sizes = collections.Counter[str]()
    for leaf in leaves:
        kind, size = _kind(leaf), int(np.prod(leaf.shape))
        found.append((kind, slice(sizes[kind], sizes[kind] + size)))
        sizes[kind] += size
    return found


class _Split:
    """Splits one array, or one of each kind, into the nest."""

    def __init__(self, nest: types.NestedSpec, leaves: list[specs.Array], is_mixed: bool) -> None:
        self._nest, self._leaves, self._is_mixed = nest, leaves, is_mixed
        self._places = places(leaves)

    def __call__(self, action: Any) -> types.NestedArray:
        leaves = [
            np.ravel(action[kind] if self._is_mixed else action)[place].reshape(leaf.shape).astype(leaf.dtype)
            for leaf, (kind, place) in zip(self._leaves, self._places, strict=True)
        ]
        return tree.unflatten_as(self._nest, leaves)
