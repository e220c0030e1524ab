"""Numbers that show the progress of learning. They are not used for training.

Shapes: `...` any axes; each number is taken over all of them.
"""

import torch


@torch.no_grad()
def explained_variance(value: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Computes the share of the targets' variance that the values explain.

        1 - var(target - value) / var(target)

    Args:
        value: The predictions, [...].
        target: The targets of the predictions, [...].

    Returns:
        [], without gradient: 1 for perfect predictions, 0 for a constant, below 0 for worse than a
        constant; also 0 if all targets are equal and there is nothing to explain.

    Raises:
        ValueError: The shapes differ, or the tensors are empty.
    """
    if value.shape != target.shape or value.numel() == 0:
        raise ValueError(
            f"`value` and `target` must have the same shape and not be empty, got {list(value.shape)} "
            f"and {list(target.shape)}."
        )
    # Subtracting one target leaves the variance the same, and makes it exactly 0 if all targets are equal.
    target_variance = (target - target.flatten()[0]).var(correction=0)
    ratio = (target - value).var(correction=0) / target_variance
    return torch.where(target_variance > 0, 1.0 - ratio, 0.0)


@torch.no_grad()
def spread_within_states(q_BN: torch.Tensor) -> torch.Tensor:
    """Computes the standard deviation of Q over the actions of a state, relative to |Q|, both mean over B.

    Args:
        q_BN: The values of N actions in each of B states, [B, N].

    Returns:
        [], without gradient.
    """
    size = q_BN.abs().mean().clamp(min=torch.finfo(q_BN.dtype).tiny)
    return q_BN.std(dim=1, correction=0).mean() / size
