"""The reference is correct: it reproduces the golden vectors and the learner's parameters."""

import dataclasses

import pytest
import torch
from torch.distributions import Normal

from minerva_acme.agents import mpo

from . import mpo_setup, plain_mpo

SMALL = dataclasses.replace(
    mpo_setup.PLAIN_CONFIG,
    policy_layer_sizes=(32, 24),
    critic_layer_sizes=(40, 32, 24),
    batch_size=8,
    num_samples=6,
)


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.golden("retrace.npz")
def test_the_plain_retrace_targets_are_the_golden_ones(case: dict[str, torch.Tensor]) -> None:
    target = plain_mpo.retrace(
        q_t=case["q"],
        v_tp1=case["v_next"],
        r_t=case["reward"],
        discount_t=case["gamma"] * (1.0 - case["done"]),
        log_prob_t=case["target_log_prob"],
        behaviour_log_prob_t=case["behaviour_log_prob"],
        lambda_=case["lambda_"].item(),
    )
    assert_close(target[:, 0], case["expected_q_retrace_first"])


@pytest.mark.golden("mpo_loss.npz")
def test_the_plain_losses_and_gradients_are_the_golden_ones(case: dict[str, torch.Tensor]) -> None:
    duals = plain_mpo.Duals(case["actions"].shape[2], 0.0, 0.0, 0.0)
    names = ("log_temperature", "log_alpha_mean", "log_alpha_stddev")
    with torch.no_grad():
        for name in names:
            getattr(duals, name).copy_(case[name])
    mean, log_std = case["online_mean"].requires_grad_(), case["online_log_std"].requires_grad_()
    terms = plain_mpo.mpo_terms(
        case["q_values"].T,
        case["actions"].transpose(0, 1),
        Normal(mean, log_std.exp()),
        Normal(case["target_mean"], case["target_log_std"].exp()),
        duals,
        epsilon=case["epsilon"].item(),
        epsilon_mean=case["epsilon_mean"].item(),
        epsilon_stddev=case["epsilon_stddev"].item(),
    )
    assert_close(terms.weights, case["expected_weights"])
    assert_close(terms.loss_temperature, case["expected_loss_temperature"])
    assert_close(terms.loss_mean, case["expected_loss_policy_mean"])
    assert_close(terms.loss_stddev, case["expected_loss_policy_stddev"])
    assert_close(terms.kl_mean, case["expected_kl_mean_per_dim"])
    assert_close(terms.kl_stddev, case["expected_kl_stddev_per_dim"])
    assert_close(terms.loss_kl, case["expected_loss_kl_mean"] + case["expected_loss_kl_stddev"])
    assert_close(terms.loss_alpha_mean, case["expected_loss_alpha_mean"])
    assert_close(terms.loss_alpha_stddev, case["expected_loss_alpha_stddev"])

    (terms.loss_mean + terms.loss_stddev + terms.loss_kl).backward()
    (terms.loss_temperature + terms.loss_alpha_mean + terms.loss_alpha_stddev).backward()
    assert_close(mean.grad, case["expected_grad_online_mean"])
    assert_close(log_std.grad, case["expected_grad_online_log_std"])
    for name in names:
        assert_close(getattr(duals, name).grad, case[f"expected_grad_{name}"])


@pytest.mark.parametrize("period", [100, 2])
def test_the_learner_ends_at_the_plain_parameters_on_the_same_noise(period: int) -> None:
    config = dataclasses.replace(
        SMALL,
        target_policy_update_period=period,
        target_critic_update_period=period,
        init_log_temperature=0.0,
        init_log_alpha_stddev=10.0,
    )
    assert_same_parameters_after_5_steps(config, observation_size=5, action_size=3)


def test_the_learner_ends_at_the_plain_parameters_at_the_size_that_is_timed() -> None:
    # Adam's first step is the gradient over its own size plus epsilon: where a gradient is below 1e-8, the
    # default epsilon, it consists of rounding. Of 547,341 parameters 16 are such.
    config = dataclasses.replace(
        mpo_setup.PLAIN_CONFIG, adam_epsilon=1e-5, init_log_temperature=0.0, init_log_alpha_stddev=10.0
    )
    assert_same_parameters_after_5_steps(config, observation_size=17, action_size=6)


def assert_same_parameters_after_5_steps(
    config: mpo.MPOConfig, observation_size: int, action_size: int
) -> None:
    spec = mpo_setup.make_spec(observation_size, action_size)
    batches = [mpo_setup.make_batch(spec, config, seed) for seed in range(5)]
    learner, plain = mpo_setup.make_learner(spec, config, batches), mpo_setup.make_plain(spec, config)
    before = plain.policy.state_dict()["mean_head.weight"].clone()
    for batch in batches:
        learner.step()
        diagnostics = plain.update(mpo_setup.plain_batch(batch))

    state = learner.save()["modules"]
    duals = {
        f"log_{name}": state["duals"][f"{name}.raw"] for name in ("temperature", "alpha_mean", "alpha_stddev")
    }
    for ours, theirs in (
        (state["policy"], plain.policy.state_dict()),
        (state["critic"], plain.critic.state_dict()),
        (duals, plain.duals.state_dict()),
    ):
        assert set(ours) == set(theirs)
        for name in ours:
            torch.testing.assert_close(ours[name], theirs[name], rtol=0.0, atol=1e-6)
    assert (plain.policy.state_dict()["mean_head.weight"] - before).abs().max() > 1e-4
    row = learner._logger.row
    for name, value in diagnostics.items():
        assert float(row[name]) == pytest.approx(value, rel=1e-3, abs=1e-4), name
