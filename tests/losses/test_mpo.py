"""MPO's losses: values and gradients derived by hand, gradients that must be zero, a small problem."""

import concurrent.futures
import functools
import math
import threading
from typing import NamedTuple

import pytest
import torch

from minerva_acme import distributions, losses
from minerva_acme.distributions.gaussian import GaussianParts


def make_gaussian(
    batch: int, size: int, seed: int, requires_grad: bool = False
) -> distributions.DiagonalGaussian:
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(batch, size, generator=generator)
    log_std = 0.3 * torch.randn(batch, size, generator=generator)
    return distributions.DiagonalGaussian(
        mean.requires_grad_(requires_grad), log_std.requires_grad_(requires_grad)
    )


def random_weights(batch: int, num_actions: int) -> torch.Tensor:
    return torch.randn(batch, num_actions, generator=torch.Generator().manual_seed(7)).softmax(dim=1)


# The E-step.


def test_weights_and_temperature_loss_are_those_derived_by_hand() -> None:
    # Q / eta = (0, log 3): weights (1, 3) / 4, logsumexp = log 4, less log 2.
    temperature = torch.tensor(2.0)
    e_step = losses.e_step(torch.tensor([[0.0, 2.0 * math.log(3.0)]]), temperature, epsilon=0.1)
    torch.testing.assert_close(e_step.weights, torch.tensor([[0.25, 0.75]]))
    torch.testing.assert_close(e_step.temperature_loss, torch.tensor(2.0 * (0.1 + math.log(2.0))))
    kl = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    torch.testing.assert_close(e_step.kl_to_prior, torch.tensor(kl))


def test_gradient_of_the_temperature_is_the_bound_less_the_kl() -> None:
    q_BN = torch.randn(16, 20, generator=torch.Generator().manual_seed(0))
    temperature = torch.tensor(0.7, requires_grad=True)
    e_step = losses.e_step(q_BN, temperature, epsilon=0.1)
    e_step.temperature_loss.backward()
    torch.testing.assert_close(temperature.grad, 0.1 - e_step.kl_to_prior)


def exact_temperature_gradient(q_BN: torch.Tensor, temperature: torch.Tensor, epsilon: float) -> torch.Tensor:
    """epsilon - mean_b KL(softmax(Q / eta) || uniform), in double precision."""
    scaled_BN = (q_BN.double() - q_BN.double().mean(dim=1, keepdim=True)) / temperature.double()
    log_weights_BN = scaled_BN.log_softmax(dim=1)
    kl_B = (log_weights_BN.exp() * (log_weights_BN + math.log(q_BN.shape[1]))).sum(dim=1)
    return (epsilon - kl_B.mean()).float()


@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("level", [0.0, 5e3, -5e3, 1e4, 1e6])
def test_gradient_of_the_temperature_keeps_its_precision_for_values_far_from_zero(
    level: float, temperature: float
) -> None:
    q_BN = level + (2.0 * torch.rand(64, 20, generator=torch.Generator().manual_seed(0)) - 1.0)
    eta = torch.tensor(temperature, requires_grad=True)
    e_step = losses.e_step(q_BN, eta, epsilon=0.1)
    e_step.temperature_loss.backward()
    expected = exact_temperature_gradient(q_BN, eta.detach(), 0.1)
    torch.testing.assert_close(eta.grad, expected, rtol=1e-5, atol=1e-6)
    log_mean_exp_B = (q_BN.double() / temperature).logsumexp(dim=1) - math.log(20)
    loss = temperature * (0.1 + log_mean_exp_B.mean())
    torch.testing.assert_close(e_step.temperature_loss, loss.float())


def test_best_temperature_puts_the_kl_on_its_bound() -> None:
    q_BN = torch.randn(64, 20, generator=torch.Generator().manual_seed(0))
    dual = losses.DualVariable((), 3.0)
    optimizer = torch.optim.LBFGS(dual.parameters(), line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = losses.e_step(q_BN, dual(), epsilon=0.1).temperature_loss
        loss.backward()
        return loss

    optimizer.step(closure)
    e_step = losses.e_step(q_BN, dual(), epsilon=0.1)
    assert e_step.kl_to_prior.item() == pytest.approx(0.1, rel=1e-3)


def kinds_of_values(kind: str) -> torch.Tensor:
    """Values [64, 16], of which the largest differs much between states."""
    generator = torch.Generator().manual_seed(3)
    q_BN = torch.randn(64, 16, generator=generator)
    if kind == "skewed":
        return q_BN.abs() ** 4
    if kind == "a few states matter":
        return q_BN * torch.rand(64, 1, generator=generator) ** 6
    if kind == "a first reward":  # a hundred times the noise, in one state of eight
        return q_BN + 100.0 * (torch.arange(64)[:, None] % 8 == 0) * (q_BN > 1.0)
    return q_BN


@pytest.mark.parametrize("unit", [1e-6, 1e-3, 1.0, 1e5, 1e12])
@pytest.mark.parametrize("kind", ["normal", "skewed", "a few states matter", "a first reward"])
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5])
def test_a_solved_temperature_puts_the_kl_on_its_bound_in_any_unit(
    kind: str, unit: float, epsilon: float
) -> None:
    q_BN = kinds_of_values(kind)
    temperature = losses.solved_temperature(unit * q_BN, epsilon)
    kl = losses.e_step(unit * q_BN, temperature, epsilon).kl_to_prior
    assert kl.item() == pytest.approx(epsilon, rel=0.01)
    torch.testing.assert_close(
        temperature, unit * losses.solved_temperature(q_BN, epsilon), rtol=1e-3, atol=0.0
    )


def test_a_solved_temperature_is_the_minimum_of_the_dual() -> None:
    q_BN = kinds_of_values("a few states matter")
    best = losses.solved_temperature(q_BN, epsilon=0.1)
    duals = [
        losses.e_step(q_BN, best * factor, 0.1).temperature_loss for factor in (0.8, 0.95, 1.0, 1.05, 1.2)
    ]
    assert duals[2] == min(duals)


def test_a_temperature_is_solved_for_under_a_prior_with_actions_that_are_never_taken() -> None:
    q_BN = kinds_of_values("normal")
    never = torch.arange(16) < 3
    logits_BN = 2.0 * torch.randn(64, 16, generator=torch.Generator().manual_seed(1))
    log_prior_BN = logits_BN.masked_fill(never, -200.0).log_softmax(dim=1)
    temperature = losses.solved_temperature(q_BN + 1e3 * never, 0.1, log_prior_BN)
    step = losses.e_step(q_BN + 1e3 * never, temperature, 0.1, log_prior_BN)
    assert step.kl_to_prior.item() == pytest.approx(0.1, rel=0.01)


def test_learners_with_shares_of_a_batch_solve_for_the_temperature_of_the_whole() -> None:
    q_BN = kinds_of_values("a few states matter")
    shares = q_BN[:40], q_BN[40:]
    arrived: list[list[torch.Tensor]] = [[], []]
    meeting = threading.Barrier(2)

    def combine(rank: int, numbers: torch.Tensor) -> torch.Tensor:
        arrived[rank].append(numbers)
        meeting.wait(timeout=60.0)
        call = len(arrived[rank]) - 1
        return arrived[0][call] + arrived[1][call]

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = pool.map(
            lambda rank: losses.solved_temperature(
                shares[rank], 0.1, combine=functools.partial(combine, rank)
            ),
            range(2),
        )
        for temperature in found:
            torch.testing.assert_close(temperature, losses.solved_temperature(q_BN, 0.1), rtol=1e-4, atol=0.0)


@pytest.mark.parametrize("level", [0.0, 7.0])
def test_values_without_any_difference_have_a_finite_temperature_and_equal_weights(level: float) -> None:
    q_BN = torch.full((4, 5), level)
    temperature = losses.solved_temperature(q_BN, 0.1)
    assert 0.0 < temperature.item() < float("inf")
    torch.testing.assert_close(losses.e_step(q_BN, temperature, 0.1).weights, torch.full((4, 5), 0.2))


def test_a_bound_out_of_reach_gives_the_best_actions_all_the_weight() -> None:
    q_BN = torch.zeros(8, 4)
    q_BN[0, 2] = 1.0  # KL of at most log(4) / 8
    temperature = losses.solved_temperature(q_BN, 1.0)
    assert losses.e_step(q_BN, temperature, 1.0).weights[0, 2].item() == pytest.approx(1.0)


def test_equal_values_give_uniform_weights() -> None:
    e_step = losses.e_step(torch.full((2, 5), 3.0), torch.tensor(0.5), epsilon=0.1)
    torch.testing.assert_close(e_step.weights, torch.full((2, 5), 0.2))
    torch.testing.assert_close(e_step.kl_to_prior, torch.tensor(0.0))


def test_weights_do_not_change_with_a_constant_added_to_q() -> None:
    q_BN = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    temperature = torch.tensor(0.5)
    shifted = losses.e_step(q_BN + 100.0, temperature, epsilon=0.1)
    torch.testing.assert_close(
        shifted.weights, losses.e_step(q_BN, temperature, epsilon=0.1).weights, rtol=1e-4, atol=1e-5
    )


def test_smallest_temperature_stays_finite() -> None:
    q_BN = 1e3 * torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    e_step = losses.e_step(q_BN, losses.DualVariable((), -25.0)(), epsilon=0.1)
    assert torch.isfinite(e_step.temperature_loss)
    torch.testing.assert_close(e_step.kl_to_prior, torch.tensor(math.log(5.0)))
    assert e_step.weights.argmax(dim=1).tolist() == q_BN.argmax(dim=1).tolist()


def test_e_step_trains_the_temperature_alone() -> None:
    q_BN = torch.randn(4, 5, requires_grad=True)
    temperature = torch.tensor(1.0, requires_grad=True)
    e_step = losses.e_step(q_BN, temperature, epsilon=0.1)
    assert not e_step.weights.requires_grad
    assert not e_step.kl_to_prior.requires_grad
    e_step.temperature_loss.backward()
    assert q_BN.grad is None
    assert temperature.grad is not None


def test_order_of_the_actions_does_not_matter() -> None:
    q_BN = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    order = torch.tensor([3, 0, 4, 1, 2])
    e_step = losses.e_step(q_BN, torch.tensor(0.5), epsilon=0.1)
    permuted = losses.e_step(q_BN[:, order], torch.tensor(0.5), epsilon=0.1)
    torch.testing.assert_close(permuted.weights, e_step.weights[:, order])
    torch.testing.assert_close(permuted.temperature_loss, e_step.temperature_loss)


# The action penalty.


def test_penalty_is_minus_the_squared_distance_to_the_box() -> None:
    low, high = torch.tensor([-1.0, -2.0]), torch.tensor([1.0, 0.0])
    actions_BND = torch.tensor([[[0.5, -1.0], [1.0, 0.0], [3.0, -1.0], [-2.0, 2.0]]])
    penalties_BN = losses.action_penalty_values(actions_BND, low, high)
    torch.testing.assert_close(penalties_BN, torch.tensor([[0.0, 0.0, -4.0, -5.0]]))


def test_penalty_moves_the_policy_into_the_box() -> None:
    # Two actions at 0 and 3, bounds [-1, 1]: penalties 0 and -4, weights by softmax.
    actions_BND = torch.tensor([[[0.0], [3.0]]])
    penalties = losses.action_penalty_values(actions_BND, torch.tensor([-1.0]), torch.tensor([1.0]))
    temperature = torch.tensor(4.0 / math.log(3.0), requires_grad=True)
    penalty = losses.e_step(penalties, temperature, epsilon=0.01)
    torch.testing.assert_close(penalty.weights, torch.tensor([[0.75, 0.25]]))

    online = distributions.DiagonalGaussian(torch.full((1, 1), 2.0, requires_grad=True), torch.zeros(1, 1))
    target = distributions.DiagonalGaussian(torch.full((1, 1), 2.0), torch.zeros(1, 1))
    uniform = torch.full((1, 2), 0.5)
    losses.decoupled_policy_losses(uniform + penalty.weights, actions_BND, online, target).mean.backward()
    # -sum_i w_i (a_i - mu) = -(1.25 (0 - 2) + 0.75 (3 - 2))
    torch.testing.assert_close(online.mean.grad, torch.tensor([[1.75]]))

    penalty.temperature_loss.backward()
    torch.testing.assert_close(temperature.grad, 0.01 - penalty.kl_to_prior)


# The M-step.


def test_policy_losses_are_those_derived_by_hand() -> None:
    weights_BN = torch.tensor([[0.25, 0.75]])
    actions_BND = torch.tensor([[[1.0], [2.0]]])
    online = distributions.DiagonalGaussian(torch.tensor([[1.0]]), torch.tensor([[math.log(2.0)]]))
    target = distributions.DiagonalGaussian(torch.tensor([[0.0]]), torch.tensor([[0.0]]))
    policy = losses.decoupled_policy_losses(weights_BN, actions_BND, online, target)
    log_sqrt_2pi = 0.5 * math.log(2.0 * math.pi)
    # N(a; 1, 1): squares 0 and 1.  N(a; 0, 2): squares 1/4 and 1.
    torch.testing.assert_close(policy.mean, torch.tensor(0.5 * 0.75 + log_sqrt_2pi))
    torch.testing.assert_close(
        policy.stddev, torch.tensor(0.5 * (0.25 * 0.25 + 0.75) + math.log(2.0) + log_sqrt_2pi)
    )


def test_gradients_of_the_policy_losses_are_analytic() -> None:
    weights_BN = random_weights(6, 10)
    actions_BND = torch.randn(6, 10, 3, generator=torch.Generator().manual_seed(1))
    online, target = make_gaussian(6, 3, seed=2, requires_grad=True), make_gaussian(6, 3, seed=3)
    policy = losses.decoupled_policy_losses(weights_BN, actions_BND, online, target)
    (policy.mean + policy.stddev).backward()

    w_BN1 = weights_BN[:, :, None]
    mean_B1D, target_mean_B1D = online.mean.detach()[:, None], target.mean[:, None]
    expected_mean = -(w_BN1 * (actions_BND - mean_B1D)).sum(dim=1) / target.log_std.exp().square() / 6
    square_BND = ((actions_BND - target_mean_B1D) / online.log_std.detach()[:, None].exp()).square()
    expected_log_std = (w_BN1 * (1.0 - square_BND)).sum(dim=1) / 6
    torch.testing.assert_close(online.mean.grad, expected_mean)
    torch.testing.assert_close(online.log_std.grad, expected_log_std)


def test_each_policy_loss_trains_its_own_half() -> None:
    weights_BN = random_weights(6, 10).requires_grad_()
    actions_BND = torch.randn(6, 10, 3, requires_grad=True)
    for field, trained, untouched in (("mean", 0, 1), ("stddev", 1, 0)):
        online = make_gaussian(6, 3, seed=2, requires_grad=True)
        target = make_gaussian(6, 3, seed=3, requires_grad=True)
        policy = losses.decoupled_policy_losses(weights_BN, actions_BND, online, target)
        getattr(policy, field).backward()
        assert online[trained].grad is not None
        assert online[untouched].grad is None
        assert target.mean.grad is None
        assert target.log_std.grad is None
    assert weights_BN.grad is None
    assert actions_BND.grad is None


def test_kls_are_those_derived_by_hand() -> None:
    online = distributions.DiagonalGaussian(torch.tensor([[1.0, 0.0]]), torch.tensor([[math.log(2.0), 0.0]]))
    target = distributions.DiagonalGaussian(torch.tensor([[0.0, 0.0]]), torch.tensor([[math.log(0.5), 0.0]]))
    kls = losses.decoupled_kls(online, target)
    # (1 - 0)^2 / (2 * 0.25);  1/2 (0.25 / 4 - 1 - log(0.25 / 4))
    torch.testing.assert_close(kls.mean, torch.tensor([2.0, 0.0]))
    torch.testing.assert_close(kls.stddev, torch.tensor([0.5 * (0.0625 - 1.0 + math.log(16.0)), 0.0]))


def test_gradients_of_the_kls_are_analytic_and_reach_the_online_policy_alone() -> None:
    online = make_gaussian(6, 3, seed=2, requires_grad=True)
    target = make_gaussian(6, 3, seed=3, requires_grad=True)
    kls = losses.decoupled_kls(online, target)
    (kls.mean.sum() + kls.stddev.sum()).backward()
    with torch.no_grad():
        variance, target_variance = (2.0 * online.log_std).exp(), (2.0 * target.log_std).exp()
        expected_mean = (online.mean - target.mean) / target_variance / 6
        expected_log_std = (1.0 - target_variance / variance) / 6
    torch.testing.assert_close(online.mean.grad, expected_mean)
    torch.testing.assert_close(online.log_std.grad, expected_log_std)
    assert target.mean.grad is None
    assert target.log_std.grad is None


def test_kls_of_an_unchanged_policy_are_zero_with_zero_gradient() -> None:
    online, target = make_gaussian(6, 3, seed=2, requires_grad=True), make_gaussian(6, 3, seed=2)
    kls = losses.decoupled_kls(online, target)
    (kls.mean.sum() + kls.stddev.sum()).backward()
    for tensor in (kls.mean, kls.stddev):
        assert tensor.tolist() == [0.0, 0.0, 0.0]
    torch.testing.assert_close(online.mean.grad, torch.zeros(6, 3))
    torch.testing.assert_close(online.log_std.grad, torch.zeros(6, 3))


def test_kls_for_the_sum_are_the_sum_by_value_and_gradient() -> None:
    gradients = []
    for per_dimension in (True, False):
        online, target = make_gaussian(6, 3, seed=2, requires_grad=True), make_gaussian(6, 3, seed=3)
        kls = losses.decoupled_kls(online, target, per_dimension=per_dimension)
        assert kls.mean.shape == kls.stddev.shape == ((3,) if per_dimension else (1,))
        total = kls.mean.sum() + kls.stddev.sum()
        total.backward()
        gradients.append((total.detach(), online.mean.grad, online.log_std.grad))
    for separate, summed in zip(*gradients, strict=True):
        torch.testing.assert_close(separate, summed)


def test_penalty_weighs_each_dimension_and_trains_no_multiplier() -> None:
    alpha_mean = torch.tensor([1.0, 10.0], requires_grad=True)
    alpha_stddev = torch.tensor([2.0, 3.0], requires_grad=True)
    kls = GaussianParts(
        torch.tensor([0.1, 0.2], requires_grad=True), torch.tensor([0.3, 0.4], requires_grad=True)
    )
    penalty = losses.kl_penalty(kls, alpha_mean, alpha_stddev)
    torch.testing.assert_close(penalty, torch.tensor(0.1 + 2.0 + 0.6 + 1.2))
    penalty.backward()
    torch.testing.assert_close(kls.mean.grad, alpha_mean.detach())
    torch.testing.assert_close(kls.stddev.grad, alpha_stddev.detach())
    assert alpha_mean.grad is None
    assert alpha_stddev.grad is None


def test_alpha_rises_where_its_kl_is_above_the_bound_and_falls_below() -> None:
    alpha = torch.tensor([1.0, 10.0], requires_grad=True)
    kl = torch.tensor([0.3, 0.0], requires_grad=True)
    loss = losses.alpha_loss(alpha, epsilon=0.1, kl=kl)
    torch.testing.assert_close(loss, torch.tensor(-0.2 + 1.0))
    loss.backward()
    torch.testing.assert_close(alpha.grad, torch.tensor([-0.2, 0.1]))
    assert kl.grad is None


def test_multipliers_of_another_number_than_the_kls_are_refused() -> None:
    kls = losses.decoupled_kls(make_gaussian(4, 3, seed=0), make_gaussian(4, 3, seed=1))
    with pytest.raises(ValueError, match=r"`alpha_mean` must have shape \[K = 3\], got \[1\]"):
        losses.kl_penalty(kls, torch.ones(1), torch.ones(3))
    with pytest.raises(ValueError, match=r"`kl` must have shape \[K = 1\], got \[3\]"):
        losses.alpha_loss(torch.ones(1), epsilon=0.1, kl=kls.mean)


def test_a_wrong_shape_is_named() -> None:
    online, target = make_gaussian(4, 3, seed=0), make_gaussian(4, 3, seed=1)
    with pytest.raises(ValueError, match=r"`q_BN` must have shape \[B, N\], got \[4\]"):
        losses.e_step(torch.zeros(4), torch.tensor(1.0), epsilon=0.1)
    with pytest.raises(ValueError, match=r"`temperature` must have shape \[\], got \[1\]"):
        losses.e_step(torch.zeros(4, 5), torch.ones(1), epsilon=0.1)
    with pytest.raises(ValueError, match=r"`actions_BND` must have shape \[B = 4, N = 5, D\], got \[5, "):
        losses.decoupled_policy_losses(torch.ones(4, 5), torch.ones(5, 4, 3), online, target)
    with pytest.raises(ValueError, match=r"`low` must have shape \[D = 3\], got \[\]"):
        losses.action_penalty_values(torch.ones(4, 5, 3), torch.tensor(-1.0), torch.tensor(1.0))
    with pytest.raises(ValueError, match=r"`target.mean` must have shape \[B = 4, D = 3\], got \[2, 3\]"):
        losses.decoupled_kls(online, make_gaussian(2, 3, seed=1))


# All of it.

EPSILON, EPSILON_MEAN, EPSILON_STDDEV = 0.1, 0.01, 0.001


class Climb(NamedTuple):
    """Where rounds on Q(a) = -|a - best|^2 end, and the KLs of each round."""

    policy: distributions.DiagonalGaussian  # [1, D]
    kl_mean: torch.Tensor  # [rounds, D]
    kl_stddev: torch.Tensor  # [rounds, D]
    kl_q: torch.Tensor  # [rounds]


def climb_quadratic(best: torch.Tensor, bounded: bool, num_rounds: int) -> Climb:
    generator = torch.Generator().manual_seed(0)
    online = distributions.DiagonalGaussian(
        torch.zeros(1, 2, requires_grad=True), torch.zeros(1, 2, requires_grad=True)
    )
    duals = losses.MPODuals(
        num_dimensions=2,
        init_log_temperature=1.0,
        init_log_alpha_mean=1.0,
        init_log_alpha_stddev=10.0,
        action_penalty=False,
    )
    policy_optimizer = torch.optim.Adam([*online], lr=5e-3)
    dual_optimizer = torch.optim.Adam(duals.parameters(), lr=0.05)
    rounds = []
    for _ in range(num_rounds):
        target = distributions.DiagonalGaussian(*(x.detach().clone() for x in online))
        actions_BND = target.sample(generator, 200).transpose(0, 1)
        q_BN = -(actions_BND - best).square().sum(dim=2)
        for _ in range(30):
            e_step = losses.e_step(q_BN, duals.temperature(), EPSILON)
            kls = losses.decoupled_kls(online, target)
            policy = losses.decoupled_policy_losses(e_step.weights, actions_BND, online, target)
            policy_loss = policy.mean + policy.stddev
            dual_loss = e_step.temperature_loss
            if bounded:
                policy_loss = policy_loss + losses.kl_penalty(kls, duals.alpha_mean(), duals.alpha_stddev())
                dual_loss = dual_loss + losses.alpha_loss(duals.alpha_mean(), EPSILON_MEAN, kls.mean)
                dual_loss = dual_loss + losses.alpha_loss(duals.alpha_stddev(), EPSILON_STDDEV, kls.stddev)
            for optimizer, loss in ((policy_optimizer, policy_loss), (dual_optimizer, dual_loss)):
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        kls = losses.decoupled_kls(online, target)
        rounds.append((kls.mean.detach(), kls.stddev.detach(), e_step.kl_to_prior))
    final = distributions.DiagonalGaussian(*(x.detach() for x in online))
    return Climb(final, *(torch.stack(column) for column in zip(*rounds, strict=True)))


def test_mpo_finds_the_maximum_of_a_quadratic_in_steps_within_its_bounds() -> None:
    best = torch.tensor([1.0, -0.7])
    climb = climb_quadratic(best, bounded=True, num_rounds=20)
    torch.testing.assert_close(climb.policy.mean, best[None], rtol=0.0, atol=0.1)
    assert climb.policy.log_std.max().item() < -0.3  # and grows sure of it
    assert climb.kl_mean.max().item() < 2.0 * EPSILON_MEAN
    assert climb.kl_mean[:5].mean().item() > 0.3 * EPSILON_MEAN
    assert climb.kl_stddev.max().item() < 2.0 * EPSILON_STDDEV
    assert climb.kl_stddev.mean().item() > 0.3 * EPSILON_STDDEV
    assert climb.kl_q[10:].mean().item() == pytest.approx(EPSILON, rel=0.2)


def test_without_its_bounds_the_policy_narrows_too_fast() -> None:
    climb = climb_quadratic(torch.tensor([1.5, -1.0]), bounded=False, num_rounds=5)
    assert climb.kl_stddev.max().item() > 10.0 * EPSILON_STDDEV


# All actions instead of samples.


def test_weights_of_all_actions_are_the_prior_tilted_by_their_values() -> None:
    # Prior 1/2, 1/4, 1/4 and Q = 0, log 2, log 6 at eta = 1: weights in the ratio 2 : 2 : 6.
    q_BN = torch.tensor([[0.0, math.log(2.0), math.log(6.0)]])
    log_prior_BN = torch.tensor([[0.5, 0.25, 0.25]]).log()
    temperature = torch.tensor(1.0, requires_grad=True)
    e_step = losses.e_step(q_BN, temperature, epsilon=0.1, log_prior_BN=log_prior_BN)
    torch.testing.assert_close(e_step.weights, torch.tensor([[0.2, 0.2, 0.6]]))
    kl = 0.2 * math.log(0.4) + 0.2 * math.log(0.8) + 0.6 * math.log(2.4)
    torch.testing.assert_close(e_step.kl_to_prior, torch.tensor(kl))
    entropy = -0.4 * math.log(0.2) - 0.6 * math.log(0.6)
    torch.testing.assert_close(e_step.entropy, torch.tensor(entropy))
    # log sum p exp(Q) = log (1/2 + 1/2 + 3/2).
    torch.testing.assert_close(e_step.temperature_loss, torch.tensor(0.1 + math.log(2.5)))
    e_step.temperature_loss.backward()
    torch.testing.assert_close(temperature.grad, torch.tensor(0.1 - kl))


def test_a_uniform_prior_is_as_if_the_actions_were_sampled() -> None:
    q_BN = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    prior = torch.full((4, 5), -math.log(5.0))
    for ours, theirs in zip(
        losses.e_step(q_BN, torch.tensor(0.5), epsilon=0.1),
        losses.e_step(q_BN, torch.tensor(0.5), epsilon=0.1, log_prior_BN=prior),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("temperature", [1.0, 1e-4])
def test_an_action_that_is_never_taken_has_no_weight_whatever_its_value(temperature: float) -> None:
    policy = distributions.Categorical(torch.zeros(1, 3)).masked(torch.tensor([True, False, True]))
    log_prior_BN = policy.logits.log_softmax(dim=1)
    for worth in (-1e3, 1e6):
        q_BN = torch.tensor([[1.0, worth, 1.0]])
        eta = torch.tensor(temperature, requires_grad=True)
        e_step = losses.e_step(q_BN, eta, epsilon=0.1, log_prior_BN=log_prior_BN)
        torch.testing.assert_close(e_step.weights, torch.tensor([[0.5, 0.0, 0.5]]))
        torch.testing.assert_close(e_step.kl_to_prior, torch.tensor(0.0), atol=1e-5, rtol=0.0)
        e_step.temperature_loss.backward()
        torch.testing.assert_close(eta.grad, torch.tensor(0.1), atol=1e-4, rtol=0.0)


def test_a_discrete_policy_is_fitted_by_the_cross_entropy_and_held_by_one_kl() -> None:
    logits = torch.tensor([[0.0, 0.0, 0.0]], requires_grad=True)
    online = distributions.Categorical(logits)
    target = distributions.Categorical(torch.tensor([[0.5, 0.25, 0.25]]).log())
    weights_BN = torch.tensor([[0.2, 0.2, 0.6]])
    (loss,) = losses.decoupled_policy_losses(weights_BN, torch.arange(3)[None], online, target)
    torch.testing.assert_close(loss, torch.tensor(math.log(3.0)))
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(gradient, torch.full((1, 3), 1.0 / 3.0) - weights_BN)
    for per_dimension in (True, False):
        kls = losses.decoupled_kls(online, target, per_dimension)
        assert kls._fields == ("mean",)
        torch.testing.assert_close(kls.mean, torch.tensor([math.log(3.0) - 1.5 * math.log(2.0)]))
    penalty = losses.kl_penalty(kls, torch.tensor([2.0], requires_grad=True))
    (gradient,) = torch.autograd.grad(penalty, logits)
    torch.testing.assert_close(
        gradient, 2.0 * (torch.full((1, 3), 1.0 / 3.0) - torch.tensor([[0.5, 0.25, 0.25]]))
    )


def test_duals_of_a_discrete_policy_have_one_multiplier() -> None:
    duals = losses.MPODuals(
        num_dimensions=1,
        init_log_temperature=1.0,
        init_log_alpha_mean=2.0,
        init_log_alpha_stddev=None,
        action_penalty=False,
    )
    assert list(duals.alphas()) == ["mean"]
    assert list(duals.state_dict()) == ["temperature.raw", "alpha_mean.raw"]
