"""WPO's loss: its gradient by differentiating twice and by moving actions, and a problem it solves."""

import pytest
import torch

from minerva_acme import distributions, losses


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(params=[(5, 2), (3, 4, 2)], ids=["states", "sequences"])
def parts(request):
    """A policy, seven samples of it and the gradients there."""
    mean, log_std = normal(*request.param).requires_grad_(), normal(*request.param, seed=1).requires_grad_()
    policy = distributions.DiagonalGaussian(mean, log_std)
    action = policy.sample(torch.Generator().manual_seed(2), 7).detach().requires_grad_()
    return policy, action, normal(7, *request.param, seed=3).requires_grad_()


def test_the_gradient_is_the_scores_change_times_the_inverse_fisher_information(parts):
    policy, action, dq_da = parts
    (score,) = torch.autograd.grad(policy.log_prob(action).sum(), action, create_graph=True)
    stddev = policy.log_std.exp()
    expected = -(score * dq_da).sum(dim=-1).mean(dim=0)
    by_mean, by_log_std = torch.autograd.grad(expected.sum(), policy, retain_graph=True)
    loss = losses.wpo_loss(*parts)
    torch.testing.assert_close(loss, expected)
    found = torch.autograd.grad(loss.sum(), policy)
    for one, other in zip(found, (by_mean * stddev**2, by_log_std * stddev**2 / 2.0), strict=True):
        torch.testing.assert_close(one, other)


def test_it_is_that_of_actions_which_follow_q_by_the_noise_that_was_drawn(parts):
    policy, action, dq_da = parts
    noise = ((action - policy.mean) / policy.log_std.exp()).detach()
    moved = -(dq_da * (policy.mean + policy.log_std.exp() * noise)).sum(dim=-1).mean(dim=0)
    expected = torch.autograd.grad(moved.sum(), policy)
    for found, one in zip(torch.autograd.grad(losses.wpo_loss(*parts).sum(), policy), expected, strict=True):
        torch.testing.assert_close(found, one)


def test_only_the_policy_is_trained(parts):
    policy, action, dq_da = parts
    losses.wpo_loss(*parts).sum().backward()
    assert action.grad is None and dq_da.grad is None and policy.mean.grad is not None


def test_following_it_finds_the_best_action_and_narrows_there():
    best = torch.tensor([0.5, -2.0])
    policy = distributions.DiagonalGaussian(*(torch.zeros(1, 2, requires_grad=True) for _ in range(2)))
    optimizer, generator = torch.optim.SGD(policy, lr=0.05), torch.Generator().manual_seed(0)
    for _ in range(300):
        action = policy.sample(generator, 8).detach()
        optimizer.zero_grad()
        losses.wpo_loss(policy, action, -2.0 * (action - best)).sum().backward()
        optimizer.step()
    torch.testing.assert_close(policy.mean.detach(), best[None], rtol=0.0, atol=0.1)
    assert policy.log_std.exp().max() < 0.3


@pytest.mark.parametrize(
    ("action", "dq_da", "name"),
    [((7, 3, 2), (1, 3, 2), "dq_da"), ((7, 3, 1), (7, 3, 1), "action"), ((3, 2), (3, 2), "action")],
)
def test_shapes_that_differ_are_refused(action, dq_da, name):
    policy = distributions.DiagonalGaussian(torch.zeros(3, 2), torch.zeros(3, 2))
    with pytest.raises(ValueError, match=f"`{name}"):
        losses.wpo_loss(policy, torch.zeros(action), torch.zeros(dq_da))
