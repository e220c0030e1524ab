"""Retrace against numbers derived by hand, a plain loop, and the targets it reduces to."""

from typing import Any

import pytest
import torch

from minerva_acme import losses


def random_inputs(batch: int, length: int, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    names = ("q_t", "v_tp1", "r_t", "log_prob_t", "behaviour_log_prob_t")
    inputs = {name: torch.randn(batch, length, generator=generator) for name in names}
    inputs["discount_t"] = 0.9 * (torch.rand(batch, length, generator=generator) > 0.2)
    inputs["mask_t"] = torch.ones(batch, length)
    return inputs


def plain_retrace(inputs: dict[str, torch.Tensor], lambda_: float) -> torch.Tensor:
    """target_t = Q_t + sum_k delta_k prod_{i = t+1..k} discount_{i-1} c_i, the sums written out."""
    x: dict[str, Any] = {name: tensor.double() for name, tensor in inputs.items()}
    batch, length = x["q_t"].shape
    target = x["q_t"].clone()
    for b in range(batch):
        for t in range(length):
            trace = 1.0
            for k in range(t, length):
                if k > t:
                    rho = (x["log_prob_t"][b, k] - x["behaviour_log_prob_t"][b, k]).exp().item()
                    trace *= x["discount_t"][b, k - 1].item() * lambda_ * min(1.0, rho)
                delta = x["r_t"][b, k] + x["discount_t"][b, k] * x["v_tp1"][b, k] - x["q_t"][b, k]
                target[b, t] += trace * delta
    return target.float()


def test_targets_are_those_derived_by_hand() -> None:
    # delta = (1 + 0.5 * 2 - 1, 0 + 0.5 * 3 - 2, 2 + 0 - 3) = (1, -0.5, -1)
    # c_1 = 0.5 * min(1, 2) = 0.5,  c_2 = 0.5 * min(1, 0.5) = 0.25
    # g_2 = -1,  g_1 = -0.5 + 0.5 * 0.25 * -1 = -0.625,  g_0 = 1 + 0.5 * 0.5 * -0.625 = 0.84375
    target_t = losses.retrace_targets(
        q_t=torch.tensor([[1.0, 2.0, 3.0]]),
        v_tp1=torch.tensor([[2.0, 3.0, 4.0]]),
        r_t=torch.tensor([[1.0, 0.0, 2.0]]),
        discount_t=torch.tensor([[0.5, 0.5, 0.0]]),
        log_prob_t=torch.tensor([[7.0, 2.0, 0.5]]).log(),
        behaviour_log_prob_t=torch.zeros(1, 3),
        mask_t=torch.ones(1, 3),
        lambda_=0.5,
    )
    torch.testing.assert_close(target_t, torch.tensor([[1.84375, 1.375, 2.0]]))


@pytest.mark.parametrize("length", [1, 2, 7])
@pytest.mark.parametrize("lambda_", [0.0, 0.6, 1.0])
def test_targets_are_the_sums_written_out(length: int, lambda_: float) -> None:
    inputs = random_inputs(batch=16, length=length)
    torch.testing.assert_close(
        losses.retrace_targets(**inputs, lambda_=lambda_),
        plain_retrace(inputs, lambda_),
        rtol=1e-5,
        atol=1e-5,
    )


def test_lambda_zero_is_one_step() -> None:
    inputs = random_inputs(batch=8, length=5)
    one_step = losses.one_step_targets(inputs["v_tp1"], inputs["r_t"], inputs["discount_t"])
    torch.testing.assert_close(losses.retrace_targets(**inputs, lambda_=0.0), one_step)


def test_actions_the_target_policy_never_takes_leave_one_step() -> None:
    inputs = random_inputs(batch=8, length=5)
    inputs["log_prob_t"] = torch.full((8, 5), -1e4)
    one_step = losses.one_step_targets(inputs["v_tp1"], inputs["r_t"], inputs["discount_t"])
    torch.testing.assert_close(losses.retrace_targets(**inputs, lambda_=1.0), one_step)


def test_on_policy_with_lambda_one_is_the_n_step_return() -> None:
    inputs = random_inputs(batch=8, length=5)
    inputs["log_prob_t"] = inputs["behaviour_log_prob_t"]
    inputs["v_tp1"][:, :-1] = inputs["q_t"][:, 1:]  # then the deltas telescope
    n_step = losses.n_step_targets(inputs["v_tp1"], inputs["r_t"], inputs["discount_t"], inputs["mask_t"])
    torch.testing.assert_close(losses.retrace_targets(**inputs, lambda_=1.0), n_step)


def test_likely_actions_do_not_lengthen_a_trace_and_never_overflow() -> None:
    inputs = random_inputs(batch=8, length=5)
    on_policy = inputs | {"log_prob_t": inputs["behaviour_log_prob_t"]}
    likely = inputs | {"log_prob_t": torch.full((8, 5), 1e4)}
    torch.testing.assert_close(
        losses.retrace_targets(**likely, lambda_=0.9), losses.retrace_targets(**on_policy, lambda_=0.9)
    )


def test_nothing_behind_a_terminal_reaches_the_steps_before() -> None:
    inputs = random_inputs(batch=4, length=4)
    inputs["discount_t"][:, 1] = 0.0
    changed = {name: tensor.clone() for name, tensor in inputs.items()}
    changed["v_tp1"][:, 1:] += 5.0
    changed["r_t"][:, 2:] -= 3.0
    before = losses.retrace_targets(**inputs, lambda_=1.0)
    after = losses.retrace_targets(**changed, lambda_=1.0)
    torch.testing.assert_close(before[:, :2], after[:, :2])
    assert not torch.allclose(before[:, 2:], after[:, 2:])


def test_truncated_sequence_keeps_its_bootstrap() -> None:
    inputs = random_inputs(batch=1, length=3)
    inputs["discount_t"] = torch.full((1, 3), 0.9)
    inputs["mask_t"] = torch.tensor([[1.0, 1.0, 0.0]])
    target_t = losses.retrace_targets(**inputs, lambda_=1.0)
    torch.testing.assert_close(target_t[0, 1], inputs["r_t"][0, 1] + 0.9 * inputs["v_tp1"][0, 1])


@pytest.mark.parametrize("garbage", [0.0, 1e30, torch.inf, torch.nan])
def test_padding_changes_nothing(garbage: float) -> None:
    full = random_inputs(batch=6, length=5)
    short = {name: tensor[:, :3] for name, tensor in full.items()}
    padded = {name: tensor.clone() for name, tensor in full.items()}
    for name in ("v_tp1", "r_t", "discount_t", "log_prob_t", "behaviour_log_prob_t"):
        padded[name][:, 3:] = garbage
    padded["mask_t"][:, 3:] = 0.0
    target_t = losses.retrace_targets(**padded, lambda_=0.9)
    torch.testing.assert_close(target_t[:, :3], losses.retrace_targets(**short, lambda_=0.9))
    torch.testing.assert_close(target_t[:, 3:], padded["q_t"][:, 3:])


def test_sequences_of_a_batch_do_not_touch() -> None:
    inputs = random_inputs(batch=6, length=5)
    alone = [
        losses.retrace_targets(**{name: tensor[b : b + 1] for name, tensor in inputs.items()}, lambda_=0.9)
        for b in range(6)
    ]
    torch.testing.assert_close(losses.retrace_targets(**inputs, lambda_=0.9), torch.cat(alone))


def test_targets_carry_no_gradient_and_inputs_stay_as_they_are() -> None:
    inputs = random_inputs(batch=2, length=3)
    copies = {name: tensor.clone() for name, tensor in inputs.items()}
    for name in ("q_t", "v_tp1", "log_prob_t"):
        inputs[name].requires_grad_()
    assert not losses.retrace_targets(**inputs, lambda_=0.9).requires_grad
    for name, tensor in copies.items():
        torch.testing.assert_close(inputs[name].detach(), tensor)


def test_a_wrong_shape_is_named() -> None:
    inputs = random_inputs(batch=2, length=3)
    inputs["v_tp1"] = torch.zeros(2, 4)
    with pytest.raises(ValueError, match=r"`v_tp1` must have shape \[B = 2, T = 3\], got \[2, 4\]"):
        losses.retrace_targets(**inputs, lambda_=0.9)
