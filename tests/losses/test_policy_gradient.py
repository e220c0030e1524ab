"""The policy gradient's loss against rlax's numbers, and what each part trains."""

import pytest
import torch

from minerva_acme import losses

# rlax 0.1.9 on jax 0.10.2, float64: policy_gradient_loss + 0.6 mean l2_loss + 0.05 entropy_loss.
LOGITS = [
    [0.13, -0.13, 0.64],
    [0.1, -0.54, 0.36],
    [1.3, 0.95, -0.7],
    [-1.27, -0.62, 0.04],
    [-2.33, -0.22, -1.25],
]
ACTION = [2, 0, 0, 2, 0]
ADVANTAGE, TARGET = [0.41, 1.04, -0.13, 1.37, -0.67], [-0.46, 0.22, -1.01, -0.21, -0.16]
VALUE = [0.35, 0.9, 0.09, -0.74, -0.92]
LOSSES = [0.227055956, 0.083402134, 0.3187, 0.951323568]
GRADIENT_OF_LOGITS = [
    [0.02331312, 0.017392227, -0.040705347],
    [-0.134351079, 0.037639615, 0.096711464],
    [0.013397681, -0.010221126, -0.003176555],
    [0.03998777, 0.078478537, -0.118466307],
    [0.121625446, -0.087794627, -0.033830818],
]
GRADIENT_OF_VALUE = [0.0972, 0.0816, 0.132, -0.0636, -0.0912]


def inputs():
    """The leaves, which require gradients, and the loss's arguments."""
    leaves = {
        name: torch.tensor(numbers, dtype=torch.float64, requires_grad=True)
        for name, numbers in (
            ("logits", LOGITS),
            ("advantages", ADVANTAGE),
            ("targets", TARGET),
            ("value", VALUE),
        )
    }
    log_probs = leaves["logits"].log_softmax(dim=1)
    arguments = {
        "log_prob": log_probs.gather(1, torch.tensor(ACTION)[:, None])[:, 0],
        "advantages": leaves["advantages"],
        "targets": leaves["targets"],
        "value": leaves["value"],
        "entropy": -(log_probs.exp() * log_probs).sum(dim=1),
    }
    return leaves, arguments


def test_loss_and_gradients_are_those_of_rlax():
    leaves, arguments = inputs()
    found = losses.policy_gradient_loss(**arguments, value_coef=0.6, entropy_coef=0.05)
    assert [part.item() for part in found] == pytest.approx(LOSSES, rel=1e-6)
    found.total.backward()
    torch.testing.assert_close(leaves["logits"].grad.tolist(), GRADIENT_OF_LOGITS, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(leaves["value"].grad.tolist(), GRADIENT_OF_VALUE, rtol=1e-6, atol=1e-9)
    assert leaves["advantages"].grad is None and leaves["targets"].grad is None


@pytest.mark.parametrize("name", ["log_prob", "advantages", "targets", "value", "entropy"])
def test_a_wrong_shape_is_named(name):
    _, arguments = inputs()
    arguments[name] = arguments[name][:, None]
    with pytest.raises(ValueError, match=f"`{name}`"):
        losses.policy_gradient_loss(**arguments, value_coef=0.6, entropy_coef=0.05)
