"""V-MPO's losses: values and gradients derived by hand, gradients that must be zero, a small problem."""

import math
from typing import Any

import pytest
import torch

from minerva_acme import distributions, losses


def random_inputs(n: int = 20, seed: int = 0) -> dict[str, Any]:
    """What `vmpo_e_step` takes, every fifth sample left out."""
    generator = torch.Generator().manual_seed(seed)
    restarting_weights = torch.ones(n)
    restarting_weights[::5] = 0.0
    return {
        "advantages": torch.randn(n, generator=generator),
        "temperature": torch.tensor(0.7),
        "epsilon": 0.1,
        "top_k_fraction": 0.5,
        "restarting_weights": restarting_weights,
        "importance_weights": 0.5 + torch.rand(n, generator=generator),
    }


def make_gaussian(
    n: int, size: int, seed: int, requires_grad: bool = False
) -> distributions.DiagonalGaussian:
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(n, size, generator=generator)
    log_std = 0.3 * torch.randn(n, size, generator=generator)
    return distributions.DiagonalGaussian(
        mean.requires_grad_(requires_grad), log_std.requires_grad_(requires_grad)
    )


# The E-step.


def test_weights_and_temperature_loss_are_those_derived_by_hand() -> None:
    # A / eta = (log 3, 0, -5, -9); the upper half weighs (3, 1) / 4. log mean exp = log(4 / 2).
    e_step = losses.vmpo_e_step(
        advantages=2.0 * torch.tensor([-5.0, math.log(3.0), -9.0, 0.0]),
        temperature=torch.tensor(2.0),
        epsilon=0.1,
        top_k_fraction=0.5,
    )
    torch.testing.assert_close(e_step.weights, torch.tensor([0.0, 0.75, 0.0, 0.25]))
    torch.testing.assert_close(e_step.selected, torch.tensor([0.0, 1.0, 0.0, 1.0]))
    torch.testing.assert_close(e_step.temperature_loss, torch.tensor(2.0 * (0.1 + math.log(2.0))))
    torch.testing.assert_close(e_step.effective_sample_size, torch.tensor(1.0 / (0.5625 + 0.0625)))
    torch.testing.assert_close(e_step.selected_share, torch.tensor(0.5))


def test_restarting_and_importance_weights_are_those_derived_by_hand() -> None:
    # Restart 1/2 halves s: (1, 1, 3 left out, 0) and the weight: 1/2 e, 2 e; the fourth is not of the top 2.
    e_step = losses.vmpo_e_step(
        advantages=torch.tensor([2.0, 1.0, 3.0, 0.0]),
        temperature=torch.tensor(1.0),
        epsilon=0.1,
        top_k_fraction=0.5,
        restarting_weights=torch.tensor([0.5, 1.0, 0.0, 1.0]),
        importance_weights=torch.tensor([1.0, 2.0, 9.0, 9.0]),
    )
    torch.testing.assert_close(e_step.selected, torch.tensor([1.0, 1.0, 0.0, 0.0]))
    torch.testing.assert_close(e_step.weights, torch.tensor([0.2, 0.8, 0.0, 0.0]))
    loss = 0.1 + math.log(2.5) + 1.0 - math.log(1.5)
    torch.testing.assert_close(e_step.temperature_loss, torch.tensor(loss))


def test_without_weights_all_samples_count_alike() -> None:
    inputs = random_inputs() | {"restarting_weights": torch.ones(20), "importance_weights": torch.ones(20)}
    absent = inputs | {"restarting_weights": None, "importance_weights": None}
    for actual, expected in zip(losses.vmpo_e_step(**absent), losses.vmpo_e_step(**inputs), strict=True):
        assert torch.equal(actual, expected)


def test_with_all_samples_it_is_the_e_step_of_mpo_over_one_state() -> None:
    inputs = random_inputs() | {"top_k_fraction": 1.0, "restarting_weights": None, "importance_weights": None}
    mpo = losses.e_step(inputs["advantages"][None], inputs["temperature"], inputs["epsilon"])
    e_step = losses.vmpo_e_step(**inputs)
    torch.testing.assert_close(e_step.weights, mpo.weights[0])
    torch.testing.assert_close(e_step.temperature_loss, mpo.temperature_loss)


def test_gradient_of_the_temperature_is_the_bound_less_the_kl() -> None:
    temperature = torch.tensor(0.7, requires_grad=True)
    weightless = {"restarting_weights": None, "importance_weights": None}
    e_step = losses.vmpo_e_step(**random_inputs() | weightless | {"temperature": temperature})
    e_step.temperature_loss.backward()
    psi = e_step.weights[e_step.selected > 0]
    kl_to_uniform = (psi * (psi * len(psi)).log()).sum()
    torch.testing.assert_close(temperature.grad, 0.1 - kl_to_uniform)


@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("level", [0.0, 5e3, -5e3, 1e4, 1e6])
def test_gradient_of_the_temperature_is_precise_for_advantages_far_from_zero(
    level: float, temperature: float
) -> None:
    advantages = level + (2.0 * torch.rand(64, generator=torch.Generator().manual_seed(0)) - 1.0)
    eta = torch.tensor(temperature, requires_grad=True)
    e_step = losses.vmpo_e_step(advantages=advantages, temperature=eta, epsilon=0.1, top_k_fraction=0.5)
    e_step.temperature_loss.backward()

    top = advantages.double().topk(32).values
    log_psi = ((top - top.mean()) / temperature).log_softmax(dim=0)
    exact = 0.1 - (log_psi.exp() * (log_psi + math.log(32))).sum()
    torch.testing.assert_close(eta.grad, exact.float(), rtol=1e-5, atol=1e-6)
    loss = temperature * (0.1 + (top / temperature).logsumexp(dim=0) - math.log(32))
    torch.testing.assert_close(e_step.temperature_loss, loss.float())


@pytest.mark.parametrize("left_out", [1e30, torch.inf])
def test_what_is_left_out_has_no_part_in_the_gradient_of_the_temperature(left_out: float) -> None:
    advantages = torch.tensor([1.0, 2.0, left_out])
    gradients = []
    for n in (2, 3):
        eta = torch.tensor(0.5, requires_grad=True)
        losses.vmpo_e_step(
            advantages=advantages[:n],
            temperature=eta,
            epsilon=0.1,
            top_k_fraction=1.0,
            restarting_weights=torch.tensor([1.0, 1.0, 0.0])[:n],
        ).temperature_loss.backward()
        gradients.append(eta.grad)
    assert torch.equal(*gradients)


def test_best_temperature_puts_the_kl_on_its_bound() -> None:
    inputs = random_inputs(n=200) | {"restarting_weights": None, "importance_weights": None}
    dual = losses.DualVariable((), 3.0)
    optimizer = torch.optim.Adam(dual.parameters(), lr=0.05)
    for _ in range(400):
        e_step = losses.vmpo_e_step(**inputs | {"temperature": dual()})
        optimizer.zero_grad()
        e_step.temperature_loss.backward()
        optimizer.step()
    psi = e_step.weights[e_step.selected > 0]
    assert (psi * (psi * len(psi)).log()).sum().item() == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize(("fraction", "k"), [(0.05, 1), (0.5, 10), (0.77, 15), (0.8, 16), (1.0, 16)])
def test_the_largest_advantages_that_count_are_selected(fraction: float, k: int) -> None:
    inputs = random_inputs() | {"top_k_fraction": fraction}  # 16 of 20 count
    e_step = losses.vmpo_e_step(**inputs)
    counting = inputs["restarting_weights"] > 0
    threshold = inputs["advantages"][counting].sort(descending=True).values[k - 1]
    expected = (counting & (inputs["advantages"] >= threshold)).float()
    assert torch.equal(e_step.selected, expected)
    assert torch.equal(e_step.weights > 0, expected > 0)
    torch.testing.assert_close(e_step.weights.sum(), torch.tensor(1.0))


def test_equal_advantages_give_k_equal_weights() -> None:
    inputs = {"advantages": torch.full((10,), 3.0), "temperature": torch.tensor(0.1), "epsilon": 0.1}
    e_step = losses.vmpo_e_step(**inputs, top_k_fraction=0.6)
    torch.testing.assert_close(e_step.weights, e_step.selected / 6.0)
    torch.testing.assert_close(e_step.effective_sample_size, torch.tensor(6.0))


def test_what_is_left_out_never_overflows_what_is_selected() -> None:
    # The sample that counts is far below the one that does not.
    e_step = losses.vmpo_e_step(
        advantages=torch.tensor([-1e6, 1e6]),
        temperature=losses.DualVariable((), 0.0)(),
        epsilon=0.1,
        top_k_fraction=1.0,
        restarting_weights=torch.tensor([1.0, 0.0]),
    )
    torch.testing.assert_close(e_step.weights, torch.tensor([1.0, 0.0]))
    e_step.temperature_loss.backward()
    assert torch.isfinite(e_step.temperature_loss)


def test_smallest_temperature_stays_finite() -> None:
    dual = losses.DualVariable((), -25.0)
    e_step = losses.vmpo_e_step(**random_inputs() | {"temperature": dual()})
    e_step.temperature_loss.backward()
    assert torch.isfinite(e_step.temperature_loss)
    assert torch.isfinite(dual.raw.grad)
    assert e_step.effective_sample_size.item() == pytest.approx(1.0)


def test_where_nothing_counts_all_are_selected_and_nothing_is_learned_from_them() -> None:
    dual = losses.DualVariable((), 0.0)
    inputs = random_inputs() | {"restarting_weights": torch.zeros(20), "temperature": dual()}
    e_step = losses.vmpo_e_step(**inputs)
    assert torch.equal(e_step.selected, torch.ones(20))
    assert torch.equal(e_step.weights, torch.zeros(20))
    assert e_step.effective_sample_size.item() == 0.0
    e_step.temperature_loss.backward()
    assert torch.isfinite(dual.raw.grad)


@pytest.mark.parametrize("fraction", [-0.5, 0.0, 0.04, 1.05, 2.0])
def test_a_fraction_that_selects_none_or_more_than_there_are_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match=rf"`top_k_fraction` must select 1 to n .* got {fraction} of n = 20"):
        losses.vmpo_e_step(**random_inputs() | {"top_k_fraction": fraction})


def test_the_e_step_trains_the_temperature_alone() -> None:
    inputs = random_inputs()
    tensors = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    for tensor in tensors.values():
        tensor.requires_grad_()
    e_step = losses.vmpo_e_step(**inputs)
    for part in (e_step.weights, e_step.selected, e_step.effective_sample_size, e_step.selected_share):
        assert not part.requires_grad
    e_step.temperature_loss.backward()
    assert [name for name, tensor in tensors.items() if tensor.grad is not None] == ["temperature"]


def test_order_of_the_samples_does_not_matter() -> None:
    inputs = random_inputs()
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    names = ("advantages", "restarting_weights", "importance_weights")
    shuffled = losses.vmpo_e_step(**inputs | {name: inputs[name][order] for name in names})
    e_step = losses.vmpo_e_step(**inputs)
    torch.testing.assert_close(shuffled.weights, e_step.weights[order])
    torch.testing.assert_close(shuffled.temperature_loss, e_step.temperature_loss)


# The M-step.


def test_policy_loss_is_the_weighted_negative_log_likelihood() -> None:
    weights = torch.tensor([0.25, 0.75], requires_grad=True)
    log_prob = torch.tensor([-2.0, -4.0], requires_grad=True)
    loss = losses.vmpo_policy_loss(weights, log_prob)
    torch.testing.assert_close(loss, torch.tensor(0.5 + 3.0))
    loss.backward()
    torch.testing.assert_close(log_prob.grad, torch.tensor([-0.25, -0.75]))
    assert weights.grad is None


def test_kls_are_those_derived_by_hand() -> None:
    # Means 1 apart at sigma_b = 1/2: 1 / (2 / 4) = 2. sigma = 1: (1/4 - 1 + 2 log 2) / 2.
    # The second sample has two such dimensions, the third is not selected.
    half = math.log(0.5)
    online = distributions.DiagonalGaussian(
        torch.tensor([[1.0, 0.0], [1.0, 3.0], [9.0, 9.0]]),
        torch.tensor([[0.0, half], [0.0, 0.0], [9.0, 9.0]]),
    )
    behaviour = distributions.DiagonalGaussian(
        torch.tensor([[0.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), torch.full((3, 2), half)
    )
    kls = losses.vmpo_kls(online, behaviour, torch.tensor([1.0, 1.0, 0.0]))
    torch.testing.assert_close(kls.mean, torch.tensor((2.0 + 4.0) / 2))
    kl_stddev = 0.5 * (0.25 - 1.0 + 2.0 * math.log(2.0))
    torch.testing.assert_close(kls.stddev, torch.tensor(3.0 * kl_stddev / 2))


def test_kls_are_those_of_distributions_that_differ_in_one_thing() -> None:
    online, behaviour = make_gaussian(6, 3, seed=0), make_gaussian(6, 3, seed=1)
    kls = losses.vmpo_kls(online, behaviour, torch.ones(6))
    old = torch.distributions.Normal(behaviour.mean, behaviour.log_std.exp())
    new_mean = torch.distributions.Normal(online.mean, behaviour.log_std.exp())
    new_stddev = torch.distributions.Normal(behaviour.mean, online.log_std.exp())
    for kl, new in ((kls.mean, new_mean), (kls.stddev, new_stddev)):
        torch.testing.assert_close(kl, torch.distributions.kl_divergence(old, new).sum(dim=1).mean())


def test_kl_of_all_samples_is_the_sum_over_dimensions_of_mpo() -> None:
    online, behaviour = make_gaussian(6, 3, seed=0), make_gaussian(6, 3, seed=1)
    kls = losses.vmpo_kls(online, behaviour, torch.ones(6))
    mpo = losses.decoupled_kls(online, behaviour, per_dimension=False)
    torch.testing.assert_close(kls.mean, mpo.mean[0])
    torch.testing.assert_close(kls.stddev, mpo.stddev[0])


def test_each_kl_trains_its_own_half_of_the_selected() -> None:
    selected = torch.tensor([1.0, 0.0, 1.0, 1.0])
    for half in ("mean", "stddev"):
        online = make_gaussian(4, 2, seed=0, requires_grad=True)
        behaviour = make_gaussian(4, 2, seed=1, requires_grad=True)
        getattr(losses.vmpo_kls(online, behaviour, selected), half).backward()
        trained, other = (online.mean, online.log_std) if half == "mean" else (online.log_std, online.mean)
        assert torch.equal(trained.grad.abs().sum(dim=1) > 0, selected > 0)
        assert other.grad is None
        assert behaviour.mean.grad is None
        assert behaviour.log_std.grad is None


def test_a_policy_that_has_not_moved_has_no_kl_and_no_gradient() -> None:
    online, behaviour = make_gaussian(4, 2, seed=0, requires_grad=True), make_gaussian(4, 2, seed=0)
    kls = losses.vmpo_kls(online, behaviour, torch.ones(4))
    (kls.mean + kls.stddev).backward()
    assert kls.mean.item() == kls.stddev.item() == 0.0
    assert not online.mean.grad.any()
    assert not online.log_std.grad.any()


def test_a_small_kl_is_not_drowned_by_rounding() -> None:
    behaviour = distributions.DiagonalGaussian(torch.zeros(1, 1), torch.zeros(1, 1))
    online = distributions.DiagonalGaussian(torch.zeros(1, 1), torch.full((1, 1), 1e-4))
    kl = losses.vmpo_kls(online, behaviour, torch.ones(1)).stddev
    assert kl.item() == pytest.approx(1e-8, rel=0.01)  # log_std differences squared


def discrete_kl(behaviour: torch.Tensor, online: torch.Tensor, selected: torch.Tensor) -> torch.Tensor:
    (kl,) = losses.vmpo_kls(distributions.Categorical(online), distributions.Categorical(behaviour), selected)
    return kl


def test_discrete_kl_is_that_derived_by_hand() -> None:
    # KL((1/2, 1/2) || (1/4, 3/4)) = 1/2 log 2 + 1/2 log 2/3; the second sample is not selected.
    behaviour = torch.tensor([[5.0, 5.0], [0.0, 9.0]], requires_grad=True)
    online = torch.tensor([[0.0, math.log(3.0)], [9.0, 0.0]], requires_grad=True)
    kl = discrete_kl(behaviour, online, torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(kl, torch.tensor(0.5 * math.log(2.0) + 0.5 * math.log(2.0 / 3.0)))
    kl.backward()
    # With respect to logits: pi - pi_b.
    torch.testing.assert_close(online.grad, torch.tensor([[-0.25, 0.25], [0.0, 0.0]]))
    assert behaviour.grad is None


def test_discrete_kl_stays_finite_where_actions_are_ruled_out() -> None:
    behaviour = torch.tensor([[0.0, -1e4, 1.0]])
    online = torch.tensor([[0.0, -1e4, 2.0]], requires_grad=True)
    kl = discrete_kl(behaviour, online, torch.ones(1))
    kl.backward()
    assert 0.0 < kl.item() < 1.0
    assert torch.isfinite(online.grad).all()


def test_value_loss_is_half_the_mean_square_and_trains_the_value_alone() -> None:
    value = torch.tensor([1.0, 2.0], requires_grad=True)
    target = torch.tensor([3.0, 1.0], requires_grad=True)
    loss = losses.value_loss(value, target)
    torch.testing.assert_close(loss, torch.tensor(0.5 * (4.0 + 1.0) / 2))
    loss.backward()
    torch.testing.assert_close(value.grad, torch.tensor([-1.0, 0.5]))
    assert target.grad is None


# Form.


def test_no_number_is_fetched_from_the_device() -> None:
    inputs = {k: v.to("meta") if isinstance(v, torch.Tensor) else v for k, v in random_inputs().items()}
    e_step = losses.vmpo_e_step(**inputs)
    assert e_step.temperature_loss.shape == ()
    policy = distributions.DiagonalGaussian(*torch.zeros(2, 20, 3, device="meta"))
    assert losses.vmpo_kls(policy, policy, e_step.selected).mean.shape == ()


@pytest.mark.parametrize("name", ["restarting_weights", "importance_weights"])
def test_a_wrong_shape_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=rf"`{name}` must have shape \[n = 20\], got \[20, 1\]"):
        losses.vmpo_e_step(**random_inputs() | {name: torch.ones(20, 1)})
    with pytest.raises(ValueError, match=r"`temperature` must have shape \[\], got \[1\]"):
        losses.vmpo_e_step(**random_inputs() | {"temperature": torch.ones(1)})
    gaussian = make_gaussian(4, 2, seed=0)
    with pytest.raises(ValueError, match=r"`behaviour.mean` must have shape \[n = 4, D = 2\], got \[4, 1\]"):
        losses.vmpo_kls(gaussian, make_gaussian(4, 1, seed=0), torch.ones(4))
    with pytest.raises(ValueError, match=r"`selected` must have shape \[n = 4\], got \[4, 1\]"):
        losses.vmpo_kls(gaussian, gaussian, torch.ones(4, 1))
    with pytest.raises(ValueError, match=r"`target` must have shape \[n = 4\], got \[4, 1\]"):
        losses.value_loss(torch.zeros(4), torch.zeros(4, 1))


def test_a_bandit_is_solved_within_the_bound_on_the_kl() -> None:
    # Two actions that pay 0 and 1; per rollout one temperature step, then four of alpha and policy.
    epsilon_kl = 0.05
    generator = torch.Generator().manual_seed(0)
    logits = torch.zeros(2, requires_grad=True)
    temperature, alpha = losses.DualVariable((), 1.0), losses.DualVariable((1,), 1.0)
    policy_optimizer = torch.optim.Adam([logits], lr=0.05)
    dual_optimizer = torch.optim.Adam([*temperature.parameters(), *alpha.parameters()], lr=0.05)
    for _ in range(60):
        behaviour = distributions.Categorical(logits.detach().expand(64, 2).clone())
        action = behaviour.sample(generator)
        advantages = losses.normalize_advantages(action.float(), unbiased=False)
        e_step = losses.vmpo_e_step(
            advantages=advantages, temperature=temperature(), epsilon=0.1, top_k_fraction=0.6
        )
        e_step.temperature_loss.backward()
        for _ in range(4):
            online = logits.expand(64, 2)
            kl = discrete_kl(behaviour.logits, online, e_step.selected)
            losses.alpha_loss(alpha(), epsilon_kl, kl[None]).backward()
            dual_optimizer.step()
            dual_optimizer.zero_grad()
            nll = losses.vmpo_policy_loss(e_step.weights, distributions.Categorical(online).log_prob(action))
            policy_optimizer.zero_grad()
            (nll + alpha().detach()[0] * kl).backward()
            policy_optimizer.step()
        assert kl.item() < 2.0 * epsilon_kl
    assert logits.softmax(dim=0)[1].item() > 0.95
