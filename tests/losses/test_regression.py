"""Losses by which a policy follows recorded actions: against loops, their gradients, and their limits."""

import math

import pytest
import torch

from minerva_acme import losses
from minerva_acme.distributions import DiagonalGaussian


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_weighted_likelihood_is_minus_weight_times_log_probability():
    log_prob, weight = normal(7).requires_grad_(), normal(7, seed=1).exp().requires_grad_()
    loss = losses.weighted_likelihood_loss(log_prob, weight)
    assert loss.tolist() == pytest.approx(
        [-w * x for w, x in zip(weight.tolist(), log_prob.tolist(), strict=True)]
    )
    loss.mean().backward()
    torch.testing.assert_close(log_prob.grad, -weight.detach() / 7)
    assert weight.grad is None


def test_exponential_weights_are_those_of_a_loop_up_to_their_bound():
    advantage = 5.0 * normal(50)
    found = losses.exponential_weights(advantage, beta=1.5, max_weight=20.0)
    expected = [min(math.exp(a / 1.5), 20.0) for a in advantage.tolist()]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    assert (found == found.max()).sum() > 1 and found.max().item() == pytest.approx(20.0)


def test_exponential_weights_of_huge_advantages_are_finite_and_so_is_nothing_else():
    found = losses.exponential_weights(torch.tensor([1e30, -1e30, 0.0]), beta=0.01, max_weight=20.0)
    torch.testing.assert_close(found, torch.tensor([20.0, 0.0, 1.0]))


def test_binary_weights_are_1_only_for_actions_that_are_better():
    found = losses.binary_weights(torch.tensor([-1.0, 0.0, 1e-6, 3.0]))
    assert found.tolist() == [0.0, 0.0, 1.0, 1.0] and found.dtype == torch.float32


def test_the_error_of_actions_is_in_units_of_half_their_range():
    action, recorded = normal(6, 3), normal(6, 3, seed=1)
    half_range = torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64)
    expected = [
        sum(((action[b, d] - recorded[b, d]) / half_range[d]).item() ** 2 for d in range(3)) / 3
        for b in range(6)
    ]
    assert losses.action_error(action, recorded, half_range).tolist() == pytest.approx(expected)


def test_td3_bc_weighs_values_by_their_size_through_which_no_gradient_flows():
    q, error = (10.0 * normal(9)).requires_grad_(), normal(9, seed=1).square().requires_grad_()
    loss = losses.td3_bc_loss(q, error, alpha=2.5)
    size = sum(abs(x) for x in q.tolist()) / 9
    assert loss.item() == pytest.approx((sum(error.tolist()) - 2.5 / size * sum(q.tolist())) / 9)
    loss.backward()
    torch.testing.assert_close(q.grad, torch.full_like(q, -2.5 / size / 9))
    torch.testing.assert_close(error.grad, torch.full_like(error, 1.0 / 9))


def test_td3_bc_is_the_same_whatever_the_scale_of_the_rewards():
    q, error = normal(9), normal(9, seed=1).square()
    found = [losses.td3_bc_loss(scale * q, error, alpha=2.5).item() for scale in (1.0, 1e3, 1e-3)]
    assert found == pytest.approx([found[0]] * 3)


@pytest.mark.parametrize("alpha", [2.5, 40.0])
@pytest.mark.parametrize("size", [0.0, 1e-38, 1e-13])
def test_values_of_nearly_0_leave_the_error_alone(size, alpha):
    q, error = torch.full((8,), size, requires_grad=True), torch.full((8,), 0.7, requires_grad=True)
    loss = losses.td3_bc_loss(q, error, alpha=alpha)
    assert loss.item() == pytest.approx(0.7)
    loss.backward()
    assert torch.equal(q.grad, torch.zeros(8)) and torch.equal(error.grad, torch.full((8,), 1.0 / 8))


@pytest.mark.parametrize(
    "call",
    [
        lambda: losses.weighted_likelihood_loss(torch.zeros(3), torch.zeros(3, 1)),
        lambda: losses.action_error(torch.zeros(3, 2), torch.zeros(3, 1), torch.ones(2)),
        lambda: losses.action_error(torch.zeros(3, 2), torch.zeros(3, 2), torch.ones(1)),
        lambda: losses.td3_bc_loss(torch.zeros(3, 1), torch.zeros(3), alpha=1.0),
        lambda: losses.td3_bc_loss(torch.zeros(3), torch.zeros(()), alpha=1.0),
    ],
)
def test_shapes_that_differ_are_refused(call):
    with pytest.raises(ValueError, match="must"):
        call()


def test_likelihood_finds_the_gaussian_whose_samples_were_clipped():
    """A density at the bounds would not: it narrows without end, and misses the mean."""
    low, high = torch.tensor([-1.0, -1.0]), torch.tensor([1.0, 1.0])
    true = DiagonalGaussian(torch.tensor([0.8, -0.2]), torch.tensor([-0.3, -1.5]))
    data = true.sample(torch.Generator().manual_seed(0), 4000).clamp(low, high)
    assert ((data == high).float().mean(dim=0) > torch.tensor([0.3, -1.0])).all()
    mean, log_std = torch.zeros(2, requires_grad=True), torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.Adam([mean, log_std], lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        log_prob = DiagonalGaussian(mean, log_std).log_prob_clipped(data, low, high)
        losses.weighted_likelihood_loss(log_prob, torch.ones_like(log_prob)).mean().backward()
        optimizer.step()
    torch.testing.assert_close(mean.detach(), true.mean, rtol=0.0, atol=0.05)
    torch.testing.assert_close(log_std.detach(), true.log_std, rtol=0.0, atol=0.08)
