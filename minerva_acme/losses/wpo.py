"""The policy's loss of Wasserstein policy optimisation (WPO).

Shapes: N sampled actions, D action dimensions; `...` leading axes of the states, such as [B] or [B, T].
"""

import torch

from minerva_acme.distributions import DiagonalGaussian
from minerva_acme.losses.shapes import check_shapes


def wpo_loss(policy: DiagonalGaussian, action: torch.Tensor, dq_da: torch.Tensor) -> torch.Tensor:
    """Computes a loss by which a policy changes as its samples do that move along the gradient of Q.

        L = -mean_i sum_d dQ/da_d(a_i) d log pi(a_i) / da_d

    Its gradient by the policy's parameters is multiplied by sigma^2 for the mean and by sigma^2 / 2 for the
    standard deviation, the inverse of their Fisher information, which stands in for that of all parameters.
    Without it, the gradient would grow without limit as the policy narrows. The products are

        -dL/dmu = mean_i dQ/da(a_i)        -dL/dsigma = mean_i dQ/da(a_i) (a_i - mu) / sigma

    Source: Pfau et al. 2025, "Wasserstein policy optimization", and Acme's WPO, which adds the samples up
    instead of taking their mean. The value of the loss has no meaning.

    Args:
        policy: The policy that is trained, [...].
        action: Raw actions drawn from it, [N, ..., D]; no gradient flows to them.
        dq_da: The gradient of the critic's values by these actions, [N, ..., D]; likewise.

    Returns:
        The loss of each state, [...].

    Raises:
        ValueError: The shapes differ.
    """
    check_shapes(("action", action, "..."), ("dq_da", dq_da, "..."))
    check_shapes(("policy.mean", policy.mean, "..."), ("action[0]", action[0], "..."))
    stddev = policy.log_std.exp()
    variance = stddev.detach().square()
    mean, stddev = _scale_gradient(policy.mean, variance), _scale_gradient(stddev, 0.5 * variance)
    # Samples and their gradients are given: the update is the change of log pi where they are.
    score = (mean - action.detach()) / stddev.square()
    return -(dq_da.detach() * score).sum(dim=-1).mean(dim=0)


def _scale_gradient(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Returns the same numbers, whose gradient is multiplied by `factor`."""
    return x.detach() + factor * (x - x.detach())
