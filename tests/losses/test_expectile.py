"""The expectile loss: by hand, its gradients, its reduction to the squared error, and what its minimum is."""

import pytest
import torch

from minerva_acme import losses


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_values_below_their_targets_cost_more():
    """Errors of 2, -3 and 0 cost 0.7 x 4, 0.3 x 9 and nothing."""
    value, target = torch.tensor([1.0, 5.0, 2.0]), torch.tensor([3.0, 2.0, 2.0])
    loss = losses.expectile_loss(value, target, expectile=0.7)
    assert loss.tolist() == pytest.approx([0.7 * 4.0, 0.3 * 9.0, 0.0])


def test_gradients_are_those_by_hand_and_flow_only_to_the_values():
    value, target = normal(9).requires_grad_(), normal(9, seed=1).requires_grad_()
    losses.expectile_loss(value, target, expectile=0.9).mean().backward()
    expected = [
        -2.0 * (0.9 if q > v else 1.0 - 0.9) * (q - v) / 9
        for v, q in zip(value.tolist(), target.tolist(), strict=True)
    ]
    torch.testing.assert_close(value.grad, torch.tensor(expected, dtype=torch.float64))
    assert target.grad is None


def test_an_expectile_of_a_half_is_half_the_mean_squared_error():
    value, target = normal(9), normal(9, seed=1)
    found = losses.expectile_loss(value, target, expectile=0.5)
    torch.testing.assert_close(found, 0.5 * (target - value).square())


@pytest.mark.parametrize(("expectile", "minimum"), [(0.5, 0.5), (0.75, 0.75), (0.99, 0.99)])
def test_its_minimum_over_two_equal_targets_is_between_them(expectile, minimum):
    """Of the targets 0 and 1: tau (1 - v) = (1 - tau) v, so v = tau."""
    grid = torch.linspace(0.0, 1.0, 101, dtype=torch.float64)
    targets = torch.tensor([0.0, 1.0], dtype=torch.float64)
    found = [losses.expectile_loss(v.expand(2), targets, expectile=expectile).mean().item() for v in grid]
    assert grid[found.index(min(found))].item() == pytest.approx(minimum)


def test_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match="target"):
        losses.expectile_loss(torch.zeros(3), torch.zeros(3, 1), expectile=0.7)
