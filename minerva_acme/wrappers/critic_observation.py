"""Observations in two parts: what the policy sees, and what only the critic sees in addition."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dm_env
import tree

from minerva_acme import specs, types
from minerva_acme.wrappers import concat_observation, transforms


class CriticObservationWrapper(transforms.ObservationTransformWrapper):
    """Sorts the entries of a dict of observations into `policy` and `critic`.

    Each part is one vector, see `ConcatObservationWrapper`, or a dict if it holds an image or integers.

    An environment that lacks some of what only the critic sees, as outside of the simulator, has the part
    `policy` alone: a trained policy can act in it, but no critic can be trained.
    """

    def __init__(self, environment: dm_env.Environment, *, critic_observations: Sequence[str]) -> None:
        """Initialises the wrapper.

        Args:
            environment: The environment to wrap, whose observations are a dict.
            critic_observations: The names of the entries that only the critic sees.

        Raises:
            ValueError: Observations are no dict, or none is left to the policy.
        """
        spec = environment.observation_spec()
        lacks_some = isinstance(spec, Mapping) and not {*critic_observations} <= {*spec}
        if not lacks_some:
            specs.check_critic_observations(spec, critic_observations)
        others = {*spec} - {*critic_observations}
        parts = {"policy": sorted(others)}
        if not lacks_some:
            parts["critic"] = sorted(critic_observations)
        made = {name: _make_part(name, {each: spec[each] for each in names}) for name, names in parts.items()}
        converts = {name: convert for name, (_, convert) in made.items()}
        super().__init__(
            environment,
            transform=functools.partial(_sorted, converts),
            spec={name: part for name, (part, _) in made.items()},
        )
        self.critic_observations = tuple(critic_observations)
        """The names of the entries that only the critic sees."""


def _sorted(converts: Mapping[str, Callable[[Any], Any]], observation: Any) -> dict[str, Any]:
    """Makes each part from the whole observation."""
    return {name: convert(observation) for name, convert in converts.items()}


def _kept(names: Sequence[str], observation: Any) -> dict[str, Any]:
    """Keeps some entries of a dict."""
    return {name: observation[name] for name in names}


def _make_part(name: str, spec: Mapping[str, Any]) -> tuple[types.NestedSpec, Callable[[Any], Any]]:
    """Returns the spec of a part, and a function that makes it from a whole observation."""
    if all(leaf.dtype.kind == "f" and len(leaf.shape) <= 2 for leaf in tree.flatten(spec)):
        concatenation = concat_observation.Concatenation(spec, is_filtered=True)
        return specs.Array((concatenation.size,), concatenation.dtype, name), concatenation
    return spec, functools.partial(_kept, [*spec])
