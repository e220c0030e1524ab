"""Projections onto bins: numbers by hand and of published implementations, properties, and the loss."""

import math

import pytest
import torch

from minerva_acme import losses

ATOMS = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0])
UNEVEN = torch.tensor([-4.0, -1.0, 0.0, 0.5, 3.0])
RETURNS = torch.tensor([[-3.0, -0.7, 0.25, 1.5, 4.0], [0.3, 0.31, 0.32, 0.33, 1.99]])
WEIGHTS = torch.tensor([[0.1, 0.2, 0.3, 0.15, 0.25], [0.05, 0.1, 0.4, 0.2, 0.25]])


def random_distributions(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns within UNEVEN and their probabilities, [64, 3, 7]: another distribution in every state."""
    generator = torch.Generator().manual_seed(seed)
    returns = -4.0 + 7.0 * torch.rand(64, 3, 7, generator=generator, dtype=torch.float64)
    weights = torch.randn(64, 3, 7, generator=generator, dtype=torch.float64).softmax(dim=-1)
    return returns, weights


# C51.


def test_return_between_two_atoms_is_split_by_its_distance_to_them() -> None:
    # 0.25 of the way from 0 to 1: three quarters stay at 0. And 1.5 is half way from 0 to 3.
    probs = losses.c51_projection(
        torch.tensor([0.25, 1.5]), torch.tensor([0.4, 0.6]), torch.tensor([-1.0, 0.0, 1.0, 2.0])
    )
    torch.testing.assert_close(probs, torch.tensor([0.0, 0.3, 0.1 + 0.3, 0.3]))


def test_projection_is_that_of_rlax() -> None:
    # rlax 0.1.9 on jax 0.10.2, float64: categorical_l2_project(returns, weights, atoms), row by row.
    expected = torch.tensor([[0.1, 0.14, 0.285, 0.15, 0.325], [0.0, 0.0, 0.51, 0.2425, 0.2475]])
    torch.testing.assert_close(losses.c51_projection(RETURNS, WEIGHTS, ATOMS), expected)
    expected = torch.tensor([[0.06666667, 0.17333333, 0.21, 0.24, 0.31], [0.0, 0.0, 0.27, 0.581, 0.149]])
    torch.testing.assert_close(losses.c51_projection(RETURNS, WEIGHTS, UNEVEN), expected)


def test_projection_keeps_sum_and_mean_of_returns_within_the_atoms() -> None:
    returns, weights = random_distributions()
    probs = losses.c51_projection(returns, weights, UNEVEN.double())
    assert (probs >= 0.0).all()
    torch.testing.assert_close(probs.sum(dim=-1), torch.ones(64, 3, dtype=torch.float64))
    torch.testing.assert_close((probs * UNEVEN).sum(dim=-1), (returns * weights).sum(dim=-1))


def test_atoms_project_onto_themselves() -> None:
    for atoms in (ATOMS, UNEVEN):
        assert torch.equal(losses.c51_projection(atoms.expand(2, 5), WEIGHTS, atoms), WEIGHTS)


def test_return_beyond_the_atoms_is_moved_to_the_first_or_last() -> None:
    probs = losses.c51_projection(torch.tensor([-1e6, 5.0]), torch.tensor([0.3, 0.7]), ATOMS)
    torch.testing.assert_close(probs, torch.tensor([0.3, 0.0, 0.0, 0.0, 0.7]))


# Two-hot.


def test_two_hot_is_that_of_rlax() -> None:
    # rlax 0.1.9: transforms.transform_to_2hot(values, -2, 2, 5); it adds 1e-5 to the gap it divides by.
    values = torch.tensor([-5.0, -1.9, -0.3, 0.75, 1.2, 2.6])
    expected = torch.tensor(
        [
            [1.0, 0.0, 0.0, 0.0, 0.0],
            [0.899991, 0.100009, 0.0, 0.0, 0.0],
            [0.0, 0.299997, 0.700003, 0.0, 0.0],
            [0.0, 0.0, 0.2499975, 0.7500025, 0.0],
            [0.0, 0.0, 0.0, 0.799992, 0.200008],
            [0.0, 0.0, 0.0, 0.0, 1.0],
        ]
    )
    torch.testing.assert_close(losses.two_hot(values, ATOMS), expected, rtol=0.0, atol=2e-5)


def test_two_hot_on_atoms_even_in_symlog_is_that_of_rlax() -> None:
    # rlax 0.1.9: transforms.transform_to_2hot_nonlinear(values, symexp(linspace(-3, 3, 5))).
    values = torch.tensor([-10.0, -2.0, 0.5, 4.0, 15.0])
    atoms = losses.symexp(torch.linspace(-3.0, 3.0, 5))
    torch.testing.assert_close(atoms, torch.tensor([-19.08553692, -3.48168907, 0.0, 3.48168907, 19.08553692]))
    expected = torch.tensor(
        [
            [0.41773741, 0.58226259, 0.0, 0.0, 0.0],
            [0.0, 0.57443383, 0.42556617, 0.0, 0.0],
            [0.0, 0.0, 0.85639154, 0.14360846, 0.0],
            [0.0, 0.0, 0.0, 0.96678313, 0.03321687],
            [0.0, 0.0, 0.0, 0.26182881, 0.73817119],
        ]
    )
    torch.testing.assert_close(losses.two_hot(values, atoms), expected)


def test_two_hot_lies_on_two_neighbours_and_keeps_the_value() -> None:
    values = random_distributions()[0]
    probs = losses.two_hot(values, UNEVEN.double())
    assert ((probs > 0.0).sum(dim=-1) <= 2).all()
    torch.testing.assert_close((probs * UNEVEN).sum(dim=-1), values)


def test_symlog_and_symexp_are_inverse_and_odd() -> None:
    x = torch.tensor([-1e4, -1.0, -1e-6, 0.0, 1e-6, 1.0, 1e4])
    torch.testing.assert_close(losses.symexp(losses.symlog(x)), x, rtol=1e-5, atol=0.0)
    torch.testing.assert_close(losses.symlog(-x), -losses.symlog(x))
    assert losses.symlog(torch.tensor(math.e - 1.0)).item() == pytest.approx(1.0)


# HL-Gauss.


def test_hl_gauss_has_the_masses_of_a_truncated_gaussian() -> None:
    # scipy 1.17.1: diff(truncnorm.cdf(edges, ..., loc=value, scale=0.6)) for edges linspace(-2, 2, 6).
    expected = torch.tensor(
        [
            [8.17577561e-01, 1.74761678e-01, 7.59741865e-03, 6.32460576e-05, 9.63998995e-08],
            [8.02519301e-02, 3.98108031e-01, 4.21657892e-01, 9.55668419e-02, 4.41530507e-03],
            [2.39967178e-04, 1.54119173e-02, 1.93662137e-01, 5.06023725e-01, 2.84662254e-01],
            [1.42583724e-07, 8.40477483e-05, 9.09149351e-03, 1.88964668e-01, 8.01859648e-01],
        ]
    )
    probs = losses.hl_gauss(torch.tensor([-2.0, -0.37, 0.9, 1.95]), torch.linspace(-2.0, 2.0, 6), 0.6)
    torch.testing.assert_close(probs, expected, rtol=1e-5, atol=1e-6)


def test_hl_gauss_agrees_with_a_sum_over_a_fine_grid() -> None:
    values, edges, sigma = random_distributions()[0][:, 0], torch.linspace(-5.0, 4.0, 10).double(), 0.75
    grid = torch.linspace(-5.0, 4.0, 9001, dtype=torch.float64)[:-1] + 0.0005
    density = torch.exp(-0.5 * ((grid - values[..., None]) / sigma).square())
    masses = density.unflatten(-1, (9, 1000)).sum(dim=-1)
    expected = masses / masses.sum(dim=-1, keepdim=True)
    torch.testing.assert_close(losses.hl_gauss(values, edges, sigma), expected, rtol=1e-5, atol=1e-7)


def test_narrow_gaussian_is_the_bin_that_holds_the_value() -> None:
    edges = torch.linspace(-2.0, 2.0, 6)
    values = torch.tensor([-3.0, -1.9, -0.5, 0.1, 1.9, 2.0, 7.0])
    probs = losses.hl_gauss(values, edges, 1e-6)
    assert torch.equal(probs, torch.nn.functional.one_hot(torch.tensor([0, 0, 1, 2, 4, 4, 4]), 5).float())


def test_mean_of_hl_gauss_is_the_value_some_sigmas_within_the_edges() -> None:
    edges = torch.linspace(-10.0, 10.0, 101).double()
    values = random_distributions()[0]
    probs = losses.hl_gauss(values, edges, 0.75 * 0.2)
    torch.testing.assert_close(probs.sum(dim=-1), torch.ones_like(values))
    centres = 0.5 * (edges[1:] + edges[:-1])
    torch.testing.assert_close((probs * centres).sum(dim=-1), values, rtol=0.0, atol=1e-5)


# The loss.


def test_loss_is_the_cross_entropy_by_hand_over_true_steps() -> None:
    logits = torch.tensor([[0.0, math.log(3.0)], [0.0, 0.0], [5.0, 1.0]], requires_grad=True)
    target = torch.tensor([[0.5, 0.5], [0.2, 0.8], [1.0, 0.0]])
    loss = losses.categorical_loss(logits, target, torch.tensor([1.0, 1.0, 0.0]))
    first = -0.5 * math.log(0.25) - 0.5 * math.log(0.75)
    torch.testing.assert_close(loss, torch.tensor((first + math.log(2.0)) / 2.0))
    loss.backward()
    # softmax - target, by the two steps
    torch.testing.assert_close(logits.grad, torch.tensor([[-0.25, 0.25], [0.3, -0.3], [0.0, 0.0]]) / 2.0)


def test_loss_of_a_bootstrapped_distribution_is_that_of_rlax() -> None:
    # rlax 0.1.9: categorical_td_learning(atoms, logits, r_t=0.7, discount_t=0.9, atoms, logits reversed).
    logits = torch.tensor([0.5, -1.0, 0.0, 2.0, 0.3])
    target = losses.c51_projection(0.7 + 0.9 * ATOMS, logits.flip(0).softmax(dim=0), ATOMS)
    loss = losses.categorical_loss(logits, target, torch.tensor(1.0))
    torch.testing.assert_close(loss, torch.tensor(2.49580164))


@pytest.mark.parametrize("garbage", [1e30, torch.inf, torch.nan])
def test_padding_changes_neither_loss_nor_gradient(garbage: float) -> None:
    mask, target = torch.tensor([[1.0, 0.0]]), torch.tensor([[[0.25, 0.75], [garbage, 0.0]]])
    logits = torch.tensor([[[0.0, 0.0], [garbage, 1.0]]], requires_grad=True)
    loss = losses.categorical_loss(logits, target, mask)
    loss.backward()
    torch.testing.assert_close(loss, torch.tensor(math.log(2.0)))
    torch.testing.assert_close(logits.grad, torch.tensor([[[0.25, -0.25], [0.0, 0.0]]]))
    assert losses.categorical_loss(logits, target, torch.zeros(1, 2)).item() == 0.0


def test_no_gradient_flows_to_the_target() -> None:
    logits, target = torch.zeros(2, 3, requires_grad=True), torch.full((2, 3), 1 / 3, requires_grad=True)
    losses.categorical_loss(logits, target, torch.ones(2)).backward()
    assert target.grad is None


def test_a_wrong_shape_is_named() -> None:
    with pytest.raises(ValueError, match=r"`weights` must have shape \[\.\.\. = \[2\], N = 5\], got \[5\]"):
        losses.c51_projection(RETURNS, WEIGHTS[0], ATOMS)
    with pytest.raises(
        ValueError, match=r"`target_probs` must have shape \[\.\.\. = \[2\], K = 3\], got \[2, 4\]"
    ):
        losses.categorical_loss(torch.zeros(2, 3), torch.zeros(2, 4), torch.ones(2))
