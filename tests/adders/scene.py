"""What the tables of several adders have in common.

Each table is run with the last discount of an episode d = 0, a termination, and d = 1, a truncation. An
episode is (start, rewards, discounts[, end]): its observations are start, start + 1, ..., its actions
start + 100, ... Steps are drawn for what a plain loop says; an episode without steps is ended by a reset.
"""

from typing import Any

import numpy as np
import pytest
import tree
from hypothesis import strategies as st

from minerva_acme import types

ENDS = pytest.mark.parametrize("final_discount", [0.0, 1.0], ids=["termination", "truncation"])
STEPS = st.lists(st.tuples(st.floats(-10, 10, width=32), st.sampled_from([0.0, 0.5, 1.0])), max_size=12)
LISTS = st.lists(st.tuples(STEPS, st.sampled_from(["last", "reset"])), max_size=4)
PERIODS = st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


def episodes_of(lists: list[Any]) -> list[Any]:
    return [
        (50 * i, *(zip(*steps, strict=True) if steps else ((), ())), end if steps else "reset")
        for i, (steps, end) in enumerate(lists)
    ]


def trajectory(observation, action, reward, discount, mask) -> types.Trajectory:
    return types.Trajectory(
        observation=np.float32(observation)[:, None],
        action=np.float32(action)[:, None],
        reward=np.float32(reward),
        discount=np.float32(discount),
        mask=np.float32(mask),
    )


def assert_same(items: list[Any], expected: list[Any]) -> None:
    assert len(items) == len(expected)
    for item, wanted in zip(items, expected, strict=True):
        tree.map_structure(np.testing.assert_array_equal, item, wanted)
        assert [leaf.dtype for leaf in tree.flatten(item)] == [leaf.dtype for leaf in tree.flatten(wanted)]
