"""The loss of mixtures of Gaussians: values by hand and of published code, and a problem it solves."""

import math

import pytest
import torch

from minerva_acme import losses

LOGITS, LOC = torch.tensor([0.2, -0.5, 1.0]), torch.tensor([-1.0, 0.5, 2.0])
SCALE = torch.tensor([0.3, 1.0, 0.6])
RETURNS = torch.tensor([-1.2, 0.0, 2.5, 6.0])


def test_density_is_that_of_distrax() -> None:
    # distrax 0.1.9: MixtureSameFamily(Categorical(LOGITS), Normal(LOC, SCALE)).log_prob(RETURNS), float64.
    expected = torch.tensor([-1.20855667, -2.99796058, -1.24431344, -18.05207238])
    torch.testing.assert_close(losses.mixture_log_prob(RETURNS, LOGITS, LOC, SCALE), expected)


def test_loss_is_the_weighted_log_density_by_hand_over_true_steps() -> None:
    # One component N(1, 2^2): log N(z) = -(z - 1)^2 / 8 - log 2 - log sqrt(2 pi), at z = 1 and 5: 0 and -2.
    loc = torch.tensor([[1.0], [7.0]], requires_grad=True)
    scale = torch.tensor([[2.0], [2.0]], requires_grad=True)
    loss = losses.mixture_loss(
        returns=torch.tensor([[1.0, 5.0], [0.0, 0.0]]),
        weights=torch.tensor([[0.75, 0.25], [0.5, 0.5]]),
        logits=torch.zeros(2, 1),
        loc=loc,
        scale=scale,
        mask=torch.tensor([1.0, 0.0]),
    )
    constant = math.log(2.0) + 0.5 * math.log(2.0 * math.pi)
    torch.testing.assert_close(loss, torch.tensor(0.25 * 2.0 + constant))
    loss.backward()
    # By the mean -(z - 1) / 4, by the scale 1 / 2 - (z - 1)^2 / 8, each weighed.
    torch.testing.assert_close(loc.grad, torch.tensor([[-0.25], [0.0]]))
    torch.testing.assert_close(scale.grad, torch.tensor([[0.5 - 0.25 * 2.0], [0.0]]))


@pytest.mark.parametrize("garbage", [1e30, torch.inf, torch.nan])
def test_padding_changes_neither_loss_nor_gradient(garbage: float) -> None:
    def gradient(padding: float, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        own = torch.stack([LOGITS, LOC, SCALE])[:, None].repeat(1, 2, 1)
        own[:, 1] = padding
        own.requires_grad_()
        returns = RETURNS.repeat(2, 1)
        returns[1] = padding
        loss = losses.mixture_loss(
            returns=returns, weights=returns, logits=own[0], loc=own[1], scale=own[2], mask=mask
        )
        loss.backward()
        return loss.detach(), own.grad

    mask = torch.tensor([1.0, 0.0])
    torch.testing.assert_close(gradient(garbage, mask), gradient(1.0, mask), rtol=0.0, atol=0.0)
    loss, grad = gradient(garbage, torch.zeros(2))
    assert loss.item() == 0.0
    assert grad is not None
    assert not grad.any()


def test_no_gradient_flows_to_the_target() -> None:
    returns, weights = RETURNS.clone().requires_grad_(), torch.full((4,), 0.25, requires_grad=True)
    loc = LOC.clone().requires_grad_()
    losses.mixture_loss(
        returns=returns, weights=weights, logits=LOGITS, loc=loc, scale=SCALE, mask=torch.tensor(1.0)
    ).backward()
    assert returns.grad is None
    assert weights.grad is None
    assert loc.grad is not None


def test_mixture_learns_two_modes_and_their_shares() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = 0.2 * torch.randn(1, 512, generator=generator)
    returns = torch.where(torch.arange(512) % 4 == 0, 3.0, -1.0) + noise  # a quarter near 3
    own = torch.tensor([[[0.0, 0.0]], [[-0.5, 0.5]], [[0.0, 0.0]]], requires_grad=True)
    optimizer = torch.optim.Adam([own], lr=0.05)
    for _ in range(400):
        loss = losses.mixture_loss(
            returns=returns,
            weights=torch.full((1, 512), 1 / 512),
            logits=own[0],
            loc=own[1],
            scale=own[2].exp(),
            mask=torch.ones(1),
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert own[0, 0].softmax(dim=0).tolist() == pytest.approx([0.75, 0.25], abs=0.01)
    assert own[1, 0].tolist() == pytest.approx([-1.0, 3.0], abs=0.05)
    assert own[2, 0].exp().tolist() == pytest.approx([0.2, 0.2], abs=0.03)


def test_a_wrong_shape_is_named() -> None:
    with pytest.raises(ValueError, match=r"`scale` must have shape \[\.\.\. = \[\], C = 3\], got \[2\]"):
        losses.mixture_log_prob(RETURNS, LOGITS, LOC, SCALE[:2])
