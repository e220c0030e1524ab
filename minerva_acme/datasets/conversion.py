"""The check that recorded data fits an environment, and its conversion to what the environment gives.

Shapes: T transitions of an episode.
"""

import logging
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import tree

from minerva_acme import specs, types
from minerva_acme.datasets import episodes as episode_forms

_logger = logging.getLogger(__name__)

_Convert: TypeAlias = Callable[[np.ndarray], np.ndarray]

# Extras that are in the units of actions.
_OF_ACTIONS = ("log_prob", "raw_action")


def check_spec(found: specs.EnvironmentSpec, expected: specs.EnvironmentSpec) -> None:
    """Checks that data of one spec can be learned from in an environment of another.

    Observations and actions must have the same names, shapes and kinds of dtypes, and discrete ones the same
    number of values. 64-bit numbers are taken for 32-bit ones, as `SinglePrecisionWrapper` does. Bounds of
    observations may differ. What differs as the training wrappers change it is converted, see `converter`.

    Args:
        found: The spec of the data.
        expected: The spec of the environment, wrapped as in training.

    Raises:
        SpecError: They differ in another way; the message names the leaf.
    """
    converter(found, expected)


def converter(
    found: specs.EnvironmentSpec, expected: specs.EnvironmentSpec
) -> Callable[[episode_forms.Episode], episode_forms.Episode]:
    """Returns a function that converts episodes of the bare environment as the training wrappers do.

    Float actions with other finite bounds are scaled from the data's bounds to the environment's, and a
    discrete observation becomes a one-hot vector where the environment has that. Other leaves stay as they
    are.

    The function raises a SpecError if an episode does not match the spec of the data, or actions are to be
    scaled with which log-probabilities or raw actions were recorded.

    Args:
        found: The spec of the data.
        expected: The spec of the environment, wrapped as in training.

    Raises:
        SpecError: The specs differ in another way; the message names the leaf.
    """
    observation = _conversions("observation", expected.observations, found.observations)
    action = _conversions("action", expected.actions, found.actions)

    def convert(episode: episode_forms.Episode) -> episode_forms.Episode:
        if any(action) and (recorded := _recorded_with_actions(episode)):
            raise specs.SpecError(
                f"`{recorded}` must not be recorded if actions are to be scaled to the environment's bounds. "
                "Record in the same environment, in the same wrappers, or leave it out."
            )
        if not any(observation) and not any(action):
            return episode
        episode = episode_forms.conform(episode, found)
        return episode._replace(
            observation=_converted(observation, found.observations, episode.observation),
            action=_converted(action, found.actions, episode.action),
        )

    return convert


def _conversions(name: str, expected: types.NestedSpec, found: types.NestedSpec) -> list[_Convert | None]:
    """Returns the conversion of each leaf from one spec to the other; None where it stays as it is.

    Raises:
        SpecError: A leaf cannot be converted.
    """
    conversions: list[_Convert | None] = []
    checker = episode_forms.checker(expected, name)
    for leaf, theirs in zip(checker.leaves, checker.flatten(found), strict=True):
        ours = leaf.spec
        is_alike = isinstance(theirs, specs.Array) and specs.are_alike(ours, theirs)
        if is_alike and (name == "observation" or specs.agree(ours, theirs)):
            conversions.append(None)
        elif name == "action" and is_alike and _is_scalable(ours) and _is_scalable(theirs):
            _logger.info(
                "`%s` of the data is scaled from %s to %s",
                leaf.name,
                *reversed(specs.describe_apart(ours, theirs)),
            )
            conversions.append(_scale(ours, theirs))
        elif name == "observation" and _is_one_hot(ours, theirs):
            conversions.append(_one_hot(ours))
        else:
            wanted, given = specs.describe_apart(ours, theirs)
            raise specs.SpecError(
                f"`{leaf.name}` of the data must be {wanted}, as in the environment, got {given}. "
                "Record in the same environment, in the same wrappers, or convert the episodes in "
                "Python: see `datasets.play`."
            )
    return conversions


def _converted(
    conversions: list[_Convert | None], spec: types.NestedSpec, nest: types.NestedArray
) -> types.NestedArray:
    leaves = zip(conversions, tree.flatten(nest), strict=True)
    return tree.unflatten_as(spec, [leaf if convert is None else convert(leaf) for convert, leaf in leaves])


def _recorded_with_actions(episode: episode_forms.Episode) -> str:
    """Returns the name of an extra that is in the units of actions, or nothing."""
    paths = (path for path, _ in tree.flatten_with_path(episode.extras) if path and path[-1] in _OF_ACTIONS)
    return next((specs.leaf_name("extras", path) for path in paths), "")


def _is_scalable(spec: specs.Array) -> bool:
    if np.dtype(spec.dtype).kind != "f" or not specs.is_bounded(spec):
        return False
    low, high = specs.limits(spec)
    return bool((low < high).all())


def _scale(ours: specs.Array, theirs: specs.Array) -> _Convert:
    """Returns the inverse of `CanonicalActionWrapper`'s map, or that map itself."""
    (low, high), (their_low, their_high) = (
        [bound.astype(np.float64) for bound in specs.limits(spec)] for spec in (ours, theirs)
    )
    return lambda leaf: low + (high - low) * ((leaf - their_low) / (their_high - their_low))


def _is_one_hot(ours: specs.Array, theirs: specs.Array) -> bool:
    return (
        isinstance(theirs, specs.DiscreteArray)
        and np.dtype(ours.dtype).kind == "f"
        and ours.shape == (theirs.num_values,)
    )


def _one_hot(ours: specs.Array) -> _Convert:
    """Returns the conversion that `FloatObservationWrapper` makes."""
    vectors = np.eye(ours.shape[0], dtype=ours.dtype)
    return lambda leaf: vectors[leaf]
