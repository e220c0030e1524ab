"""Rewards of several numbers: each by its name, or all as one weighted sum."""

import math
from collections.abc import Mapping

import dm_env
import numpy as np
import tree

from minerva_acme import specs, types
from minerva_acme.wrappers import base


class NamedRewardsWrapper(base.EnvironmentWrapper):
    """Gives rewards of several numbers as a dict of scalars.

    The name of a number is its path in the reward, with the index of an element behind that of its array:

        {"task": 1.0, "effort": [0.2, 0.3]}  ->  {"task": 1.0, "effort/0": 0.2, "effort/1": 0.3}

    Discounts stay as they are.
    """

    def __init__(self, environment: dm_env.Environment) -> None:
        """Takes the environment.

        Raises:
            ValueError: Its reward is one number already, or two numbers would have one name.
        """
        super().__init__(environment)
        leaves = _spec_of_numbers(environment.reward_spec())
        names = [name for name, _ in leaves]
        if names == [""] or len({*names}) < len(names):
            raise ValueError(
                "`environment` must have rewards of several numbers, each with a name of its own, got "
                f"{', '.join(names) or 'one number'}."
            )
        self._names = names
        self._reward_spec = {name: specs.Array((), leaf.dtype, name) for name, leaf in leaves}

    def reward_spec(self) -> types.NestedSpec:
        return self._reward_spec

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        if timestep.first():
            return timestep
        return timestep._replace(reward=dict(zip(self._names, _numbers(timestep.reward), strict=True)))


class ScalarRewardWrapper(base.EnvironmentWrapper):
    """Sums rewards of several numbers into one, sum_k w_k r_k, for agents that take one reward."""

    def __init__(self, environment: dm_env.Environment, *, weights: Mapping[str, float]) -> None:
        """Takes the environment and the weights.

        Args:
            environment: The environment to wrap.
            weights: The weight of each number by its name, as `NamedRewardsWrapper` names them.

        Raises:
            ValueError: A name is missing or unknown, or a weight is not finite.
        """
        super().__init__(environment)
        leaves = _spec_of_numbers(environment.reward_spec())
        names = [name for name, _ in leaves]
        if sorted(names) != sorted(weights):
            raise ValueError(
                f"`weights` must have one weight for each of {', '.join(sorted(names)) or 'one reward'}, got "
                f"{', '.join(sorted(weights)) or 'none'}."
            )
        for name, weight in weights.items():
            if not math.isfinite(weight):
                raise ValueError(f"`weights` must be finite, got {weight} for '{name}'.")
        self._weights = np.array([weights[name] for name in names], np.float64)
        self._dtype = np.result_type(np.float32, *[leaf.dtype for _, leaf in leaves])

    def reward_spec(self) -> types.NestedSpec:
        return specs.Array((), self._dtype, name="reward")

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        if timestep.first():
            return timestep
        total = self._weights @ np.array(_numbers(timestep.reward), np.float64)
        return timestep._replace(reward=self._dtype.type(total))


def _spec_of_numbers(reward_spec: types.NestedSpec) -> list[tuple[str, specs.Array]]:
    """Returns the names of a reward's numbers, and the spec of the leaf that each is from."""
    return [
        ("/".join(map(str, (*path, *index))), leaf)
        for path, leaf in tree.flatten_with_path(reward_spec)
        for index in np.ndindex(leaf.shape)
    ]


def _numbers(reward: types.NestedArray) -> list[np.generic]:
    return [number for leaf in tree.flatten(reward) for number in np.asarray(leaf).ravel()]
