"""The loss of an actor-critic that follows the policy gradient.

Shapes: n samples of a rollout.
"""

from typing import NamedTuple

import torch

from minerva_acme.losses.shapes import check_shapes
from minerva_acme.losses.vmpo import value_loss


class PolicyGradientLosses(NamedTuple):
    """The loss and its parts; gradients flow through all of them."""

    total: torch.Tensor  # []  policy + value_coef * value - entropy_coef * entropy
    policy: torch.Tensor  # []  its gradient is the policy gradient, negated
    value: torch.Tensor  # []  half the mean squared error
    entropy: torch.Tensor  # []  entropy of the policy, mean over n, nats


def policy_gradient_loss(
    *,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    targets: torch.Tensor,
    value: torch.Tensor,
    entropy: torch.Tensor,
    value_coef: float,
    entropy_coef: float,
) -> PolicyGradientLosses:
    """Computes the policy gradient's loss, the value's error and the entropy bonus.

        L_pi = -mean A log pi(a | s)
        L_V  = 1/2 mean (V - R)^2
        L    = L_pi + value_coef L_V - entropy_coef mean H

    For V-trace, A and R are its advantages and targets.

    Source: Espeholt et al. 2018, "IMPALA: Scalable distributed deep-RL with importance weighted actor-learner
    architectures", section 4.2. Deviation: means where the paper has sums over the rollout.

    Args:
        log_prob: The log-probability log pi(a | s) of the policy that is trained, nats, [n].
        advantages: The advantages A, with the weights of samples from older policies, [n].
        targets: The value's regression targets R, [n].
        value: V(s) of the network that is trained, [n].
        entropy: The entropy at s of the policy that is trained, nats, [n]; if actions are squashed, the agent
            passes the entropy of the raw Gaussian.
        value_coef: The weight of the value's loss.
        entropy_coef: The weight of the entropy.

    Returns:
        `PolicyGradientLosses`. Gradients flow only to `log_prob`, `value` and `entropy`.

    Raises:
        ValueError: The shapes differ.
    """
    check_shapes(
        ("log_prob", log_prob, "n"),
        ("advantages", advantages, "n"),
        ("targets", targets, "n"),
        ("value", value, "n"),
        ("entropy", entropy, "n"),
    )
    # Advantages are data: the policy gradient does not train the value.
    policy_loss = -(advantages.detach() * log_prob).mean()
    value_error = value_loss(value, targets)
    mean_entropy = entropy.mean()
    return PolicyGradientLosses(
        total=policy_loss + value_coef * value_error - entropy_coef * mean_entropy,
        policy=policy_loss,
        value=value_error,
        entropy=mean_entropy,
    )
