"""Parity with the golden vectors: values and gradients, every case of the files."""

import os
import pathlib

import numpy as np
import pytest
import torch

from minerva_acme import losses, networks

GOLDEN_DIR = pathlib.Path(
    os.environ.get("MINERVA_GOLDEN_DIR") or pathlib.Path(__file__).resolve().parents[1] / "golden"
)


def load_cases(file: str) -> list[dict[str, torch.Tensor]]:
    with np.load(GOLDEN_DIR / file) as arrays:
        cases: list[dict[str, torch.Tensor]] = [{} for _ in range(int(arrays["num_cases"]))]
        for key in arrays.files:
            if key != "num_cases":
                case, name = key.removeprefix("case").split("/")
                cases[int(case)][name] = torch.from_numpy(np.asarray(arrays[key]))
    return cases


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", load_cases("retrace.npz"))
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


@pytest.mark.parametrize("case", load_cases("mpo_loss.npz"))
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
    online = networks.DiagonalGaussian(
        case["online_mean"].requires_grad_(), case["online_log_std"].requires_grad_()
    )
    target = networks.DiagonalGaussian(case["target_mean"], case["target_log_std"])

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
    assert_close(e_step.kl_to_uniform / epsilon, case["expected_kl_q_rel"])
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
