"""Observations without their text."""

from collections.abc import Mapping
from typing import Any

import dm_env
import tree

from minerva_acme import specs, types
from minerva_acme.wrappers import base


class DropTextWrapper(base.EnvironmentWrapper):
    """Leaves out the parts of an observation that are strings, such as an instruction in words.

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
        self._kept = _without_text(spec)
        if self._kept is None:
            raise ValueError(
                "`observation_spec` must have something besides text, got "
                f"{tree.map_structure(specs.describe, spec)}. Turn the text into numbers with "
                "ObservationTransformWrapper."
            )

    def observation_spec(self) -> types.NestedSpec:
        return self._kept

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        observation = _like(self.environment.observation_spec(), timestep.observation)
        return timestep._replace(observation=observation)


def is_text(spec: Any) -> bool:
    """Whether a spec is of strings."""
    return isinstance(spec, specs.StringArray) or (isinstance(spec, specs.Array) and spec.dtype.kind in "SU")


def _without_text(spec: types.NestedSpec) -> types.NestedSpec:
    """The nest without its text; None where nothing is left."""
    return None if is_text(spec) else _like(spec, spec)


def _like(spec: types.NestedSpec, nest: types.NestedArray) -> types.NestedArray:
    """The parts of a nest, or of its spec, that the spec says are not text; None where nothing is left."""
    if isinstance(spec, Mapping):
        parts = {name: _like(part, nest[name]) for name, part in spec.items() if not is_text(part)}
        return {name: part for name, part in parts.items() if part is not None} or None
    if isinstance(spec, tuple | list):
        kept = [_like(part, nest[index]) for index, part in enumerate(spec) if not is_text(part)]
        return tuple(part for part in kept if part is not None) or None
    return nest
