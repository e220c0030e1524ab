"""The deterministic policy gradient: what its gradient is, and what it is not of."""

import pytest
import torch

from minerva_acme import losses


def test_the_gradient_by_the_action_is_minus_that_of_q_over_the_batch():
    action = torch.tensor([[0.3, -0.2], [0.1, 0.5]], requires_grad=True)
    dq_da = torch.tensor([[2.0, -1.0], [0.0, 0.5]], requires_grad=True)
    losses.dpg_loss(action, dq_da, max_norm=10.0).mean().backward()
    assert action.grad.tolist() == [[-1.0, 0.5], [0.0, -0.25]]
    assert dq_da.grad is None


def test_the_gradient_of_each_state_is_clipped_by_its_norm():
    action = torch.zeros(3, 2, requires_grad=True)
    dq_da = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    losses.dpg_loss(action, dq_da, max_norm=1.0).mean().backward()
    torch.testing.assert_close(3.0 * action.grad, -torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))


def test_without_a_limit_no_gradient_is_clipped():
    action = torch.zeros(2, 2, requires_grad=True)
    losses.dpg_loss(action, torch.tensor([[3e4, 4.0], [0.0, 0.0]]), max_norm=float("inf")).mean().backward()
    torch.testing.assert_close(action.grad, torch.tensor([[-1.5e4, -2.0], [0.0, 0.0]]))


def test_following_it_finds_the_best_action():
    action, best = torch.zeros(2, 1, requires_grad=True), torch.tensor([[0.5], [-2.0]])
    optimizer = torch.optim.SGD([action], lr=0.2)
    for _ in range(100):
        (dq_da,) = torch.autograd.grad(-(action - best).square().sum(), action)
        optimizer.zero_grad()
        losses.dpg_loss(action, dq_da, max_norm=1.0).mean().backward()
        optimizer.step()
    torch.testing.assert_close(action.detach(), best, rtol=0.0, atol=1e-3)


def test_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match="dq_da"):
        losses.dpg_loss(torch.zeros(2, 3), torch.zeros(2, 1), max_norm=1.0)
