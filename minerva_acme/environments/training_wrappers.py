"""The rules by which `make_training_environment` wraps an environment.

Each rule finds the parts of the specs that it applies to. If there are any, its wrapper is applied, which is
logged once for each environment in a process.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import dm_env
import numpy as np
import tree

from minerva_acme import specs, types, wrappers
from minerva_acme.wrappers import flat_action, float_observation, numbers_only

_LOG = logging.getLogger(__name__)
_said: set[tuple[str, str]] = set()


class Rule(NamedTuple):
    """A wrapper, and the parts of the specs that need it."""

    find: Callable[[specs.EnvironmentSpec], list[str]]
    """Returns the parts that need the wrapper; without any, it is left out."""
    wrap: Callable[[dm_env.Environment], dm_env.Environment]
    words: str
    """The change to these parts, for the log; "" to log nothing."""


def wrap(
    environment: dm_env.Environment,
    name: str,
    critic_observations: Sequence[str] = (),
    *,
    concatenate: bool = True,
) -> dm_env.Environment:
    """Applies the rules to an environment, in order.

    Args:
        environment: The environment, without wrappers.
        name: The environment's name, for messages; "" to log nothing.
        critic_observations: The names of entries of the observation that only the critic sees.
        concatenate: Whether observations without images become one vector.

    Raises:
        ValueError: There are such names, but no such entries, or nothing may be concatenated; or a spec is
            not a nest of specs.
    """
    if not isinstance(concatenate, bool) or (critic_observations and not concatenate):
        raise ValueError(
            "`concatenate` must be True or False, and True with `critic_observations`, each of whose two "
            f"parts becomes one vector, got {concatenate!r}."
        )
    for field, spec in specs.make_environment_spec(environment)._asdict().items():
        specs.Checker(spec, field)  # raises if something is not a spec
    for rule in _rules(name, critic_observations, concatenate):
        parts = rule.find(specs.make_environment_spec(environment))
        if parts:
            environment = rule.wrap(environment)
            line = f"{rule.words}: {', '.join(parts)}"
            if name and rule.words and (name, line) not in _said:
                _said.add((name, line))
                _LOG.info("%s: %s", name, line)
    return environment


def scale_actions(environment: dm_env.Environment) -> dm_env.Environment:
    """Wraps an environment for agents that act in [-1, 1]. Actions outside are clipped."""
    return wrappers.CanonicalActionWrapper(environment, clip=True)


def continuous_actions(spec: specs.EnvironmentSpec) -> list[str]:
    """Returns the names of the actions that are floats."""
    return _parts("action", spec.actions, lambda leaf: np.issubdtype(leaf.dtype, np.floating))


def _rules(name: str, critic_observations: Sequence[str], concatenate: bool) -> list[Rule]:
    def check(environment: dm_env.Environment) -> dm_env.Environment:
        return wrappers.SpecCheckWrapper(environment, name=name, strict=False)

    def sort(environment: dm_env.Environment) -> dm_env.Environment:
        return wrappers.CriticObservationWrapper(environment, critic_observations=critic_observations)

    flat = [Rule(_flat, wrappers.ConcatObservationWrapper, "concatenated to one vector")] * concatenate
    if critic_observations:
        flat = [Rule(_everything, sort, "")]
    return [
        Rule(_no_numbers, wrappers.NumbersOnlyWrapper, "left out, since it holds no numbers"),
        # At this point fields still have the environment's own names and bounds.
        Rule(_everything, check, ""),
        Rule(_no_floats, wrappers.FloatObservationWrapper, "turned into float32"),
        Rule(continuous_actions, scale_actions, "scaled to [-1, 1]"),
        Rule(_nested_actions, wrappers.FlatActionWrapper, "taken as one vector"),
        *flat,
        Rule(_unnamed_rewards, wrappers.NamedRewardsWrapper, "taken as rewards with a name each"),
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
    """Returns all parts of the observation, or none if one is for an encoder: an image, or a large choice."""

    def is_for_encoder(leaf: specs.Array) -> bool:
        return len(leaf.shape) > 2 or leaf.dtype.kind in "biu"

    if _parts("observation", spec.observations, is_for_encoder):
        return []
    return _parts("observation", spec.observations, lambda leaf: True)


def _unnamed_rewards(spec: specs.EnvironmentSpec) -> list[str]:
    return _parts("reward", spec.rewards, lambda leaf: not specs.are_numbers(spec.rewards))


def _parts(name: str, nest: types.NestedSpec, is_one: Callable[[Any], bool]) -> list[str]:
    return [
        f"{specs.leaf_name(name, path)} ({specs.describe(leaf)})"
        for path, leaf in tree.flatten_with_path(nest)
        if is_one(leaf)
    ]
