"""Observations without text and without empty arrays."""

from collections.abc import Mapping
from typing import Any

import dm_env
import tree

from minerva_acme import specs, types
from minerva_acme.wrappers import base


class NumbersOnlyWrapper(base.EnvironmentWrapper):
    """Leaves out the parts of an observation that hold no number: strings, such as an instruction in words,
    and arrays of size 0.

    Dicts and tuples without anything left go too. What the text says is lost to the agent: where it matters,
    turn it into numbers with `ObservationTransformWrapper` instead.
    """

    def __init__(self, environment: dm_env.Environment) -> None:
        """Wraps an environment.

        Raises:
            ValueError: nothing is left of the observation.
        """
        super().__init__(environment)
        spec = environment.observation_spec()
        self._spec, self._kept = spec, _numbers(spec)
        if self._kept is None:
            raise ValueError(
                "`observation_spec` must have a part that holds numbers, got "
                f"{tree.map_structure(specs.describe, spec)}. Turn the text into numbers with "
                "ObservationTransformWrapper."
            )

    def observation_spec(self) -> types.NestedSpec:
        return self._kept

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        return timestep._replace(observation=_like(self._spec, timestep.observation))


def holds_no_number(spec: Any) -> bool:
    """Whether a spec is of strings or of nothing."""
    if not isinstance(spec, specs.Array):
        return False
    return isinstance(spec, specs.StringArray) or spec.dtype.kind in "SU" or 0 in spec.shape


def _numbers(spec: types.NestedSpec) -> types.NestedSpec:
    """What of the nest holds numbers; None where nothing is left."""
    return None if holds_no_number(spec) else _like(spec, spec)


def _like(spec: types.NestedSpec, nest: types.NestedArray) -> types.NestedArray:
    """The parts of a nest, or of its spec, that hold numbers by the spec; None where nothing is left."""
    if isinstance(spec, Mapping):
        parts = {name: _like(part, nest[name]) for name, part in spec.items() if not holds_no_number(part)}
        return {name: part for name, part in parts.items() if part is not None} or None
    if isinstance(spec, tuple | list):
        kept = [_like(part, nest[index]) for index, part in enumerate(spec) if not holds_no_number(part)]
        return tuple(part for part in kept if part is not None) or None
    return nest
