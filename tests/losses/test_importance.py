"""How much items count that were drawn more often than others."""

import pytest
import torch

from minerva_acme import losses


def weights(probability, table_size, exponent):
    return losses.importance_weights(torch.tensor(probability), torch.tensor(table_size), exponent).tolist()


def test_the_weights_are_those_of_the_paper():
    # N P = 2, 1, 1/2; to the power of -1: 1/2, 1, 2; over the largest: 1/4, 1/2, 1.
    assert weights([0.5, 0.25, 0.125], [4, 4, 4], 1.0) == [0.25, 0.5, 1.0]
    # To the power of -1/2 their roots: the largest stays 1.
    assert weights([0.5, 0.25, 0.125], [4, 4, 4], 0.5) == pytest.approx([0.5, 0.5**0.5, 1.0])


def test_the_size_of_the_table_counts_where_it_grew_between_two_draws():
    # N P = 1 and 2.
    assert weights([0.25, 0.25], [4, 8], 1.0) == [1.0, 0.5]


def test_an_exponent_of_0_and_a_uniform_table_weigh_all_alike():
    assert weights([0.7, 0.2, 0.1], [3, 3, 3], 0.0) == [1.0, 1.0, 1.0]
    assert weights([0.2, 0.2], [5, 5], 0.6) == [1.0, 1.0]


def test_full_correction_makes_the_mean_of_a_prioritised_sample_that_of_the_table():
    values = torch.tensor([1.0, 2.0, 4.0, 9.0])
    probability = torch.tensor([0.1, 0.2, 0.3, 0.4])
    w = losses.importance_weights(probability, torch.full((4,), 4), 1.0)
    # The expectation over what is drawn; 1 / max_j w_j is N min P = 0.4.
    assert (probability * w * values).sum().item() == pytest.approx(0.4 * values.mean().item())


def test_the_weights_of_rare_items_of_a_large_table_keep_their_digits():
    n = 1_000_000
    assert weights([1.0 / n, 1e-12], [n, n], 1.0) == pytest.approx([1e-6, 1.0])


def test_other_shapes_are_refused():
    with pytest.raises(ValueError, match="`table_size` must have shape"):
        losses.importance_weights(torch.ones(3), torch.ones(2), 1.0)
