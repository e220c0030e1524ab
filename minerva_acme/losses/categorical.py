"""Returns as categorical distributions over fixed bins: projections onto the bins, and the loss.

Shapes: K bins, N returns of a target distribution; `...` any leading axes, such as [B, T].

Sources: [1] Bellemare et al. 2017, "A distributional perspective on reinforcement learning" (C51);
[2] Hafner et al. 2023, "Mastering diverse domains through world models" (DreamerV3; two-hot, symlog);
[3] Farebrother et al. 2024, "Stop regressing: training value functions via classification for scalable
deep RL" (HL-Gauss).
"""

import math

import torch

from minerva_acme.losses.critic import mean_over_steps
from minerva_acme.losses.shapes import check_shapes


def symlog(x: torch.Tensor) -> torch.Tensor:
    """Computes sign(x) log(1 + |x|), for any shape. Source: [2]."""
    return x.sign() * x.abs().log1p()


def symexp(x: torch.Tensor) -> torch.Tensor:
    """Computes sign(x) (exp(|x|) - 1), the inverse of `symlog`, for any shape. Source: [2]."""
    return x.sign() * x.abs().expm1()


def c51_projection(returns: torch.Tensor, weights: torch.Tensor, atoms: torch.Tensor) -> torch.Tensor:
    """Moves each return's probability to the two atoms around it, more to the nearer one.

        p_k = sum_j w_j max(0, 1 - |clip(z_j, z_1, z_K) - z_k| / gap)

    gap is the distance of atom k to its neighbour on the side of z_j. A projected distribution keeps its
    mean, unless returns lie beyond the first or last atom, to which they are moved. For the target
    r + gamma z, pass those values as the returns; if the episode ended, the discount is 0 and all are r.

    Source: [1] eq. 7. Deviation: atoms need not be evenly spaced.

    Args:
        returns: The returns z_j, [..., N].
        weights: The probabilities w_j of the returns, summing to 1 over N, [..., N].
        atoms: The atoms z_k, ascending, [K].

    Returns:
        The probabilities of the atoms, [..., K].

    Raises:
        ValueError: A shape is wrong.
    """
    check_shapes(("returns", returns, "...N"), ("weights", weights, "...N"), ("atoms", atoms, "K"))
    offset = returns.clamp(atoms[0], atoms[-1]).unsqueeze(-1) - atoms  # [..., N, K]
    # After the clip nothing lies beyond the first and last atom: those sides' gaps are not used.
    gaps = atoms.diff()
    gap_above, gap_below = torch.cat([gaps, gaps[-1:]]), torch.cat([gaps[:1], gaps])
    distance = torch.where(offset > 0.0, offset / gap_above, -offset / gap_below)
    return (weights.unsqueeze(-1) * (1.0 - distance).clamp(min=0.0)).sum(dim=-2)


def two_hot(values: torch.Tensor, atoms: torch.Tensor) -> torch.Tensor:
    """Computes the distribution on the two atoms around a value whose mean is that value.

    It is the `c51_projection` of a deterministic return. Source: [2] eq. 10. [2] encodes the symlog of a
    value; to do so, give atoms evenly spaced in symlog: the mean over them is then the value itself.

    Args:
        values: The values, [...]; beyond the atoms they become the first or last one.
        atoms: The atoms, ascending, [K].

    Returns:
        The probabilities of the atoms, [..., K].

    Raises:
        ValueError: A shape is wrong.
    """
    returns = values.unsqueeze(-1)
    return c51_projection(returns, torch.ones_like(returns), atoms)


def hl_gauss(values: torch.Tensor, edges: torch.Tensor, sigma: float) -> torch.Tensor:
    """Computes the mass of a Gaussian around a value in each bin: a smooth histogram for a loss (HL).

        p_k = (Phi((e_{k+1} - y) / sigma) - Phi((e_k - y) / sigma)) / (the same of e_{K+1} and e_1)

    The mean over the bins' centres equals the value if there are many bins and the value is a few sigmas
    inside the edges; closer to an edge, the mean moves inwards.

    Source: [3] section 3.1 and appendix A, with sigma = 0.75 bin widths. Deviation: values beyond the edges
    are moved to them, whereas [3] chooses bounds that contain all values.

    Args:
        values: The values y, [...].
        edges: The edges e, ascending, [K + 1].
        sigma: The standard deviation of the Gaussian, in units of the values, > 0.

    Returns:
        The probabilities of the bins, [..., K].

    Raises:
        ValueError: `edges` is not a vector.
    """
    check_shapes(("edges", edges, "E"))
    values = values.clamp(edges[0], edges[-1]).unsqueeze(-1)
    cdf = torch.special.erf((edges - values) / (math.sqrt(2.0) * sigma))
    return cdf.diff(dim=-1) / (cdf[..., -1:] - cdf[..., :1])


def categorical_loss(logits: torch.Tensor, target_probs: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Computes the cross-entropy of predicted to target distribution, mean over unmasked steps.

        L = -sum mask sum_k p_k log softmax(logits)_k / max(1, number of mask > 0)

    Source: [1] algorithm 1.

    Args:
        logits: The logits of the online critic at the taken actions, [..., K].
        target_probs: The target probabilities p, summing to 1 over K, [..., K].
        mask: The weight of each step, [...]; see `critic_loss`.

    Returns:
        The loss, nats, []; 0 if every step is masked. Its gradient flows only to `logits`.

    Raises:
        ValueError: A shape is wrong.
    """
    check_shapes(("logits", logits, "...K"), ("target_probs", target_probs, "...K"), ("mask", mask, "..."))
    # Padding may hold anything, infinities and NaN too, which a mask on the loss alone would let through.
    happened = (mask > 0).unsqueeze(-1)
    log_probs = torch.where(happened, logits, 0.0).log_softmax(dim=-1)
    target_probs = torch.where(happened, target_probs.detach(), 0.0)
    return mean_over_steps(-(target_probs * log_probs).sum(dim=-1), mask)
