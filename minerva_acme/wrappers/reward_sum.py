"""Sums of an environment's rewards."""

import operator

import tree

from minerva_acme import specs, types


def add(total: types.NestedArray, reward: types.NestedArray) -> types.NestedArray:
    """Adds two nests of rewards, leaf by leaf."""
    return tree.map_structure(operator.add, total, reward)


def summed_spec(reward_spec: types.NestedSpec) -> types.NestedSpec:
    """Returns the spec of such a sum: the rewards' spec without bounds, which a sum can exceed."""
    return tree.map_structure(lambda spec: specs.Array(spec.shape, spec.dtype, spec.name), reward_spec)
