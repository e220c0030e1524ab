"""Drawing by weight."""

import numpy as np
import pytest

from minerva_acme.replay.sum_tree import SumTree


def tree_of(weights):
    tree = SumTree(len(weights))
    tree.set_many(np.arange(len(weights)), np.array(weights, np.float64))
    return tree


def test_a_point_lies_in_the_share_of_its_place():
    tree = tree_of([3.0, 1.0, 0.0, 6.0])
    assert tree.total() == 10.0
    points = np.array([0.0, 2.9, 3.0, 3.9, 4.0, 9.9])
    assert tree.find(points).tolist() == [0, 0, 1, 1, 3, 3]


@pytest.mark.parametrize("capacity", [1, 2, 3, 8, 100, 1000])
def test_it_agrees_with_cumulative_sums_however_weights_are_set(capacity):
    generator = np.random.default_rng(capacity)
    tree, weights = SumTree(capacity), np.zeros(capacity)
    for _ in range(20):
        for place in generator.integers(0, capacity, generator.integers(0, 12)).tolist():
            weights[place] = generator.integers(0, 5)
            tree.set(place, weights[place])
        places = generator.integers(0, capacity, generator.integers(0, 40))
        values = generator.integers(0, 5, len(places)).astype(np.float64)
        for place, value in zip(places, values, strict=True):
            weights[place] = value
        tree.set_many(places, values)
        assert tree.total() == weights.sum()
        np.testing.assert_array_equal(tree.weights(np.arange(capacity)), weights)
        if weights.sum():
            points = generator.random(50) * weights.sum()
            expected = np.searchsorted(np.cumsum(weights), points, side="right")
            np.testing.assert_array_equal(tree.find(points), expected)


def test_rounding_never_draws_a_weight_of_0():
    tree = tree_of([0.1] * 7 + [0.0] * 9)
    total = tree.total()
    assert tree.find(np.array([total, np.nextafter(total, 0.0), 2 * total])).max() == 6


def test_the_same_weights_give_the_same_tree_whatever_happened_before():
    generator = np.random.default_rng(0)
    weights = generator.random(100)
    direct, roundabout = tree_of(weights), tree_of(generator.random(100) * 1e9)
    for place in generator.permutation(100).tolist():
        roundabout.set(place, float(weights[place]))
        roundabout.total()
    assert roundabout.total() == direct.total()
    points = generator.random(1000) * direct.total()
    np.testing.assert_array_equal(roundabout.find(points), direct.find(points))


def test_a_tree_that_is_never_drawn_from_keeps_no_growing_list():
    tree = SumTree(16)
    for i in range(1000):
        tree.set(i % 16, 1.0)
    assert len(tree._stale) <= 16
    assert tree.total() == 16.0
