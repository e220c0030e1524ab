"""Parity with the golden vectors: values and gradients, every case of the files."""

import pytest
import torch

from minerva_acme import distributions, losses


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.golden("retrace.npz")
def test_retrace_targets_are_the_golden_ones(case: dict[str, torch.Tensor]) -> None:
    target_t = losses.retrace_targets(
        q_t=case["q"],
        v_tp1=case["v_next"],
        r_t=case["reward"],
        discount_t=case["gamma"] * (1.0 - case["done"]),
        log_prob_t=case["target_log_prob"],
        behaviour_log_prob_t=case["behaviour_log_prob"],
        mask_t=torch.ones_like(case["q"]),
        lambda_=case["lambda_"].item(),
    )
    assert_close(target_t[:, 0], case["expected_q_retrace_first"])


@pytest.mark.golden("mpo_loss.npz")
def test_mpo_losses_and_gradients_are_the_golden_ones(case: dict[str, torch.Tensor]) -> None:
    duals = losses.MPODuals(
        num_dimensions=case["actions"].shape[2],
        init_log_temperature=0.0,
        init_log_alpha_mean=0.0,
        init_log_alpha_stddev=0.0,
        action_penalty=False,
    )
    with torch.no_grad():
        for dual, name in (
            (duals.temperature, "log_temperature"),
            (duals.alpha_mean, "log_alpha_mean"),
            (duals.alpha_stddev, "log_alpha_stddev"),
        ):
            dual.raw.copy_(case[name])
    online = distributions.DiagonalGaussian(
        case["online_mean"].requires_grad_(), case["online_log_std"].requires_grad_()
    )
    target = distributions.DiagonalGaussian(case["target_mean"], case["target_log_std"])

    epsilon = case["epsilon"].item()
    e_step = losses.e_step(case["q_values"], duals.temperature(), epsilon)
    policy = losses.decoupled_policy_losses(e_step.weights, case["actions"], online, target)
    kls = losses.decoupled_kls(online, target)
    alpha_mean, alpha_stddev = duals.alpha_mean(), duals.alpha_stddev()
    alpha_mean_loss = losses.alpha_loss(alpha_mean, case["epsilon_mean"].item(), kls.mean)
    alpha_stddev_loss = losses.alpha_loss(alpha_stddev, case["epsilon_stddev"].item(), kls.stddev)
    penalty = losses.kl_penalty(kls, alpha_mean, alpha_stddev)

    assert_close(e_step.weights, case["expected_weights"])
    assert_close(e_step.temperature_loss, case["expected_loss_temperature"])
    assert_close(e_step.kl_to_prior / epsilon, case["expected_kl_q_rel"])
    assert_close(policy.mean, case["expected_loss_policy_mean"])
    assert_close(policy.stddev, case["expected_loss_policy_stddev"])
    assert_close(kls.mean, case["expected_kl_mean_per_dim"])
    assert_close(kls.stddev, case["expected_kl_stddev_per_dim"])
    assert_close(penalty, case["expected_loss_kl_mean"] + case["expected_loss_kl_stddev"])
    assert_close(alpha_mean_loss, case["expected_loss_alpha_mean"])
    assert_close(alpha_stddev_loss, case["expected_loss_alpha_stddev"])

    (policy.mean + policy.stddev + penalty).backward()
    (e_step.temperature_loss + alpha_mean_loss + alpha_stddev_loss).backward()
    assert_close(online.mean.grad, case["expected_grad_online_mean"])
    assert_close(online.log_std.grad, case["expected_grad_online_log_std"])
    assert_close(duals.temperature.raw.grad, case["expected_grad_log_temperature"])
    assert_close(duals.alpha_mean.raw.grad, case["expected_grad_log_alpha_mean"])
    assert_close(duals.alpha_stddev.raw.grad, case["expected_grad_log_alpha_stddev"])


@pytest.mark.parametrize("estimator", ["returns", "dae", "gae"])
@pytest.mark.golden("rollout_targets.npz")
def test_rollout_targets_are_the_golden_ones(case: dict[str, torch.Tensor], estimator: str) -> None:
    last_t = case["done"].clone()
    last_t[-1] = 1.0
    rollout = {
        "r_t": case["reward"],
        "discount_t": case["gamma"] * (1.0 - case["done"]),
        "v_t": case["value"],
        "v_tp1": torch.cat([case["value"][1:], case["last_value"][None]]),
        "last_t": last_t,
    }
    targets = {
        "returns": lambda: losses.return_advantages(**rollout),
        "dae": lambda: losses.one_step_advantages(**rollout),
        "gae": lambda: losses.gae(**rollout, lambda_=case["lambda_"].item()),
    }[estimator]()
    assert_close(targets.target, case[f"expected_returns_{estimator}"])
    assert_close(targets.advantage, case[f"expected_advantages_{estimator}"])


@pytest.mark.golden("ppo_loss.npz")
def test_ppo_losses_and_gradients_are_the_golden_ones(case: dict[str, torch.Tensor]) -> None:
    trained = {name: case[name].requires_grad_() for name in ("log_prob", "value", "entropy")}
    advantages = case["advantages"]
    if case["normalize_advantages"]:
        advantages = losses.normalize_advantages(advantages, unbiased=True)
    ppo = losses.ppo_loss(
        **trained,
        behaviour_log_prob=case["behaviour_log_prob"],
        behaviour_value=case["behaviour_value"],
        advantages=advantages,
        targets=case["returns"],
        clip_ratio=case["clip_ratio"].item(),
        clip_value=bool(case["clip_value"]),
        entropy_coef=case["entropy_coef"].item(),
        value_coef=case["value_coef"].item(),
    )
    assert_close(ppo.policy, case["expected_loss_policy"])
    assert_close(ppo.value, case["expected_loss_value"])
    assert_close(ppo.total, case["expected_loss"])
    assert_close(ppo.approx_kl, case["expected_approx_kl"])
    assert_close(ppo.clip_fraction, case["expected_clip_fraction"])

    ppo.total.backward()
    for name, tensor in trained.items():
        assert_close(tensor.grad, case[f"expected_grad_{name}"])


def golden_squashed_log_prob(
    policy: distributions.DiagonalGaussian, squash: distributions.TanhSquash, action: torch.Tensor
) -> torch.Tensor:
    """log-density of squashed actions, [n], as the golden file has it: with 1 - tanh(raw)^2 + 1e-6.

    The project's own is exact. The difference, a constant of the action, has no gradient.
    """
    raw = squash.inverse(action)
    added = torch.log1p(1e-6 * torch.cosh(raw).square()).sum(dim=1)
    return policy.log_prob(raw) - squash.log_det(raw) - added


@pytest.mark.golden("vmpo_loss.npz")
def test_vmpo_losses_and_gradients_are_the_golden_ones(case: dict[str, torch.Tensor]) -> None:
    temperature = losses.DualVariable((), case["log_temperature"].item())
    alpha_mean = losses.DualVariable((1,), case["log_alpha_mean"].item())
    alpha_stddev = losses.DualVariable((1,), case["log_alpha_stddev"].item())
    online = distributions.DiagonalGaussian(
        case["online_mean"].requires_grad_(), case["online_log_std"].requires_grad_()
    )
    behaviour = distributions.DiagonalGaussian(case["behaviour_mean"], case["behaviour_log_std"])
    value = case["value"].requires_grad_()
    advantages = case["advantages"]
    if case["normalize_advantages"]:
        advantages = losses.normalize_advantages(advantages, unbiased=False)

    e_step = losses.vmpo_e_step(
        advantages=advantages,
        temperature=temperature(),
        epsilon=case["epsilon_temperature"].item(),
        top_k_fraction=case["top_k_fraction"].item(),
        restarting_weights=case["restarting_weights"],
        importance_weights=case["importance_weights"],
    )
    squash = distributions.TanhSquash(case["action_low"], case["action_high"])
    log_prob = golden_squashed_log_prob(online, squash, case["action"])
    weighted_nll = losses.vmpo_policy_loss(e_step.weights, log_prob)
    kls = losses.vmpo_kls(online, behaviour, e_step.selected)
    alpha_mean_loss = losses.alpha_loss(alpha_mean(), case["epsilon_mean"].item(), kls.mean[None])
    alpha_stddev_loss = losses.alpha_loss(alpha_stddev(), case["epsilon_stddev"].item(), kls.stddev[None])
    alpha_loss = alpha_mean_loss + alpha_stddev_loss
    penalty = alpha_mean().detach() * kls.mean + alpha_stddev().detach() * kls.stddev
    policy_loss = weighted_nll + penalty.sum()
    value_loss = losses.value_loss(value, case["returns"])

    assert_close(log_prob, case["log_prob"])
    assert_close(e_step.weights, case["expected_weights"])
    assert_close(e_step.selected, case["expected_selected"])
    assert_close(e_step.temperature_loss, case["expected_loss_temperature"])
    assert_close(weighted_nll, case["expected_weighted_nll"])
    assert_close(kls.mean, case["expected_kl_mean"])
    assert_close(kls.stddev, case["expected_kl_stddev"])
    assert_close(alpha_loss, case["expected_loss_alpha"])
    assert_close(policy_loss, case["expected_loss_policy"])
    assert_close(value_loss, case["expected_loss_value"])

    (policy_loss + value_loss).backward()
    (e_step.temperature_loss + alpha_loss).backward()
    assert_close(online.mean.grad, case["expected_grad_online_mean"])
    assert_close(online.log_std.grad, case["expected_grad_online_log_std"])
    assert_close(value.grad, case["expected_grad_value"])
    assert_close(temperature.raw.grad, case["expected_grad_log_temperature"])
    assert_close(alpha_mean.raw.grad.sum(), case["expected_grad_log_alpha_mean"])
    assert_close(alpha_stddev.raw.grad.sum(), case["expected_grad_log_alpha_stddev"])
