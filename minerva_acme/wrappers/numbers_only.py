"""Observations without text and without empty arrays."""

import functools
from collections.abc import Mapping
from typing import Any

import dm_env
import tree

from minerva_acme import specs, types
from minerva_acme.wrappers import transforms


class NumbersOnlyWrapper(transforms.ObservationTransformWrapper):
    """Leaves out the parts of an observation that hold no numbers: strings, such as a written instruction,
    and arrays of size 0.

    Dicts and tuples that become empty are left out too. The agent never sees the text: if it matters, turn it
    into numbers with `ObservationTransformWrapper` instead.
    """

    def __init__(self, environment: dm_env.Environment) -> None:
        """Wraps an environment.

        Raises:
            ValueError: No part of the observation holds numbers.
        """
        spec = environment.observation_spec()
        kept = None if holds_no_number(spec) else _like(spec, spec)
        if kept is None:
            raise ValueError(
                "`observation_spec` must have a part that holds numbers, got "
                f"{tree.map_structure(specs.describe, spec)}. Turn the text into numbers with "
                "ObservationTransformWrapper."
            )
        super().__init__(environment, transform=functools.partial(_like, spec), spec=kept)


def holds_no_number(spec: Any) -> bool:
    """Returns whether a spec is of strings or of an empty array."""
    if not isinstance(spec, specs.Array):
        return False
    return isinstance(spec, specs.StringArray) or spec.dtype.kind in "SU" or 0 in spec.shape


def _like(spec: types.NestedSpec, nest: types.NestedArray) -> types.NestedArray:
    """Returns the parts of a nest, or of its spec, that hold numbers by the spec; None if nothing is left."""
    if isinstance(spec, Mapping):
        parts = {name: _like(part, nest[name]) for name, part in spec.items() if not holds_no_number(part)}
        return {name: part for name, part in parts.items() if part is not None} or None
    if isinstance(spec, tuple | list):
        kept = [_like(part, nest[index]) for index, part in enumerate(spec) if not holds_no_number(part)]
        return tuple(part for part in kept if part is not None) or None
    return nest
