"""What `make_training_environment` does with an environment's spaces: a list of rules.

Each rule names the parts of the specs that it is for. Where there are some, its wrapper is applied, and the
log says so once for each environment in a process.
"""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import dm_env
import numpy as np
import tree

from minerva_acme import specs, types, wrappers
from minerva_acme.wrappers import flat_action, float_observation, numbers_only

_LOG = logging.getLogger(__name__)
_said: set[tuple[str, str]] = set()


class Rule(NamedTuple):
    """A wrapper, and where it is needed."""

    find: Callable[[specs.EnvironmentSpec], list[str]]
    """Returns the parts that the wrapper is for; it is left out where there is none."""
    wrap: Callable[[dm_env.Environment], dm_env.Environment]
    words: str
    """What happens to these parts; "" if that is not worth saying."""


def wrap(environment: dm_env.Environment, name: str) -> dm_env.Environment:
    """Applies the rules to an environment, in order.

    Args:
        environment: as it was made.
        name: of it, for messages.
    """
    for rule in _rules(name):
        parts = rule.find(specs.make_environment_spec(environment))
        if parts:
            environment = rule.wrap(environment)
            line = f"{rule.words}: {', '.join(parts)}"
            if rule.words and (name, line) not in _said:
                _said.add((name, line))
                _LOG.info("%s: %s", name, line)
    return environment


def scale_actions(environment: dm_env.Environment) -> dm_env.Environment:
    """Wraps an environment for agents that act in [-1, 1]. Beyond that, actions are clipped."""
    return wrappers.CanonicalActionWrapper(environment, clip=True)


def continuous_actions(spec: specs.EnvironmentSpec) -> list[str]:
    """Names the actions that are floats."""
    return _parts("action", spec.actions, lambda leaf: np.issubdtype(leaf.dtype, np.floating))


def _rules(name: str) -> list[Rule]:
    def check(environment: dm_env.Environment) -> dm_env.Environment:
        return wrappers.SpecCheckWrapper(environment, name=name, strict=False)

    return [
        Rule(_no_numbers, wrappers.NumbersOnlyWrapper, "left out, for it holds no number"),
        # Here fields still have the names and bounds that the environment gave them.
        Rule(_everything, check, ""),
        Rule(_no_floats, wrappers.FloatObservationWrapper, "turned into float32"),
        Rule(continuous_actions, scale_actions, "scaled to [-1, 1]"),
        Rule(_nested_actions, wrappers.FlatActionWrapper, "taken as one vector"),
        Rule(_flat, wrappers.ConcatObservationWrapper, "concatenated to one vector"),
        Rule(_everything, wrappers.SinglePrecisionWrapper, ""),
    ]


def _everything(spec: specs.EnvironmentSpec) -> list[str]:
    return ["everything"]


def _no_numbers(spec: specs.EnvironmentSpec) -> list[str]:
    return _parts("observation", spec.observations, numbers_only.holds_no_number)


def _no_floats(spec: specs.EnvironmentSpec) -> list[str]:
    return _parts("observation", spec.observations, float_observation.becomes_float)


def _nested_actions(spec: specs.EnvironmentSpec) -> list[str]:
    return _parts("action", spec.actions, lambda leaf: flat_action.is_nested(spec.actions))


def _flat(spec: specs.EnvironmentSpec) -> list[str]:
    """All of the observation, unless a part of it is for an encoder: an image, or one of very many values."""

    def is_for_encoder(leaf: specs.Array) -> bool:
        return len(leaf.shape) > 2 or leaf.dtype.kind in "biu"

    if _parts("observation", spec.observations, is_for_encoder):
        return []
    return _parts("observation", spec.observations, lambda leaf: True)


def _parts(name: str, nest: types.NestedSpec, is_one: Callable[[Any], bool]) -> list[str]:
    return [
        f"{specs.leaf_name(name, path)} ({specs.describe(leaf)})"
        for path, leaf in tree.flatten_with_path(nest)
        if is_one(leaf)
    ]
