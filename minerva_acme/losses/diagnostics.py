"""Numbers that tell how learning goes. Nothing is trained by them.

Shapes: `...` any axes, over all of which a number is taken.
"""

import torch


@torch.no_grad()
def explained_variance(value: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """How much of the targets' variance the values account for.

        1 - var(target - value) / var(target)

    Args:
        value: predictions, [...].
        target: what they predict, [...].

    Returns:
        [], without gradient: 1 for perfect predictions, 0 for a constant, below 0 for worse than a
        constant; 0 also where the targets are all equal and there is nothing to explain.

    Raises:
        ValueError: the shapes differ, or they hold nothing.
    """
    if value.shape != target.shape or value.numel() == 0:
        raise ValueError(
            f"`value` and `target` must have one shape and not be empty, got {list(value.shape)} "
            f"and {list(target.shape)}."
        )
    # From one of them: a variance stays, and that of equal targets is 0 without a rounding error.
    target_variance = (target - target.flatten()[0]).var(correction=0)
    ratio = (target - value).var(correction=0) / target_variance
    return torch.where(target_variance > 0, 1.0 - ratio, 0.0)


@torch.no_grad()
def spread_within_states(q_BN: torch.Tensor) -> torch.Tensor:
    """Standard deviation of Q over the actions of a state, as a share of |Q|, both mean over B.

    Args:
        q_BN: values of N actions in each of B states, [B, N].

    Returns:
        [], without gradient.
    """
    size = q_BN.abs().mean().clamp(min=torch.finfo(q_BN.dtype).tiny)
    return q_BN.std(dim=1, correction=0).mean() / size
