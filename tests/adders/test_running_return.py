"""The discounted sum of rewards that is recorded with each step."""

from typing import NamedTuple

import dm_env
import numpy as np
import pytest

from minerva_acme import specs
from minerva_acme.adders import RunningReturnAdder, SequenceAdder
from minerva_acme.replay import base as replay
from minerva_acme.replay import layouts

FLOAT = specs.Array((), np.float32)


class Extras(NamedTuple):
    log_prob: object
    running_return: object = ()


def make_adder(store, layout, discount=0.5):
    inner = SequenceAdder(client=store.client, table="table", layout=layout, period=1)
    return RunningReturnAdder(inner, discount=discount)


def step(observation, reward, step_type=dm_env.StepType.MID):
    return dm_env.TimeStep(step_type, np.float32(reward), np.float32(1), np.float32([observation]))


def first(observation):
    return dm_env.restart(np.float32([observation]))


@pytest.fixture
def layout(scalar_spec):
    return layouts.TrajectoryLayout(scalar_spec, 1, Extras(FLOAT, FLOAT))


def sums_of(store, layout):
    """The recorded sums in the order of the steps."""
    return [float(item.extras.running_return[0]) for item in store.items(layout)]


def test_the_sum_is_discounted_and_starts_again_with_each_episode(make_store, layout):
    store = make_store(layout.signature)
    with make_adder(store, layout) as adder:
        for rewards, ends in (([1.0, 4.0, -2.0], True), ([8.0, 0.0], False), ([3.0], True)):
            adder.add_first(first(0.0))
            for i, reward in enumerate(rewards):
                last = ends and i == len(rewards) - 1
                kind = dm_env.StepType.LAST if last else dm_env.StepType.MID
                adder.add(np.float32([0.0]), step(i + 1.0, reward, kind), Extras(np.float32(-1.0)))
            adder.reset()
    assert sums_of(store, layout) == [1.0, 4.5, 0.25, 8.0, 4.0, 3.0]


def test_a_step_that_is_refused_does_not_count(make_memory_store, layout):
    store = make_memory_store(layout.signature)
    with make_adder(store, layout) as adder:
        adder.add_first(first(0.0))
        adder.add(np.float32([0.0]), step(1.0, 2.0), Extras(np.float32(-1.0)))
        with pytest.raises(Exception, match="observation"):
            adder.add(np.float32([0.0]), step([1.0, 1.0], 100.0), Extras(np.float32(-1.0)))
        adder.add(np.float32([0.0]), step(2.0, 1.0), Extras(np.float32(-1.0)))
    assert sums_of(store, layout) == [2.0, 2.0]


def test_a_step_that_a_table_holds_back_counts(make_memory_store, layout, monkeypatch):
    store = make_memory_store(layout.signature)
    with make_adder(store, layout) as adder:
        adder.add_first(first(0.0))
        added = SequenceAdder.add

        def holding_back(self, *step):
            added(self, *step)
            raise replay.ReplayTimeout("the table holds inserts back")

        monkeypatch.setattr(SequenceAdder, "add", holding_back)
        with pytest.raises(replay.ReplayTimeout):
            adder.add(np.float32([0.0]), step(1.0, 2.0), Extras(np.float32(-1.0)))
        monkeypatch.undo()
        adder.add(np.float32([0.0]), step(2.0, 1.0), Extras(np.float32(-1.0)))
    assert sums_of(store, layout) == [2.0, 2.0]


@pytest.mark.parametrize("discount", [-0.1, 1.1, float("nan")])
def test_a_discount_that_cannot_be_is_refused(make_memory_store, layout, discount):
    with pytest.raises(ValueError, match=r"`discount` must be in \[0, 1\]"):
        make_adder(make_memory_store(layout.signature), layout, discount)
