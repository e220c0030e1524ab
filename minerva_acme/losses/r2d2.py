"""The parts of R2D2's loss: transformed values, and the loss and priority of a sequence.

Shapes: B batch, T transitions. Time: `_t` is for t = 0..T-1, `_tp1` for t + 1 = 1..T.
"""

import torch

from minerva_acme.losses.n_step import n_step_targets
from minerva_acme.losses.shapes import check_shapes

_EPSILON = 1e-3


def signed_hyperbolic(x: torch.Tensor) -> torch.Tensor:
    """Compresses values of any size.

        h(x) = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x

    Source: Pohlen et al. 2018, "Observe and look further: achieving consistent performance on Atari",
    proposition A.2, with the epsilon of R2D2.

    Args:
        x: The values, [...].

    Returns:
        The compressed values, [...].
    """
    return x.sign() * ((x.abs() + 1.0).sqrt() - 1.0) + _EPSILON * x


def signed_parabolic(x: torch.Tensor) -> torch.Tensor:
    """Undoes `signed_hyperbolic`.

        h^-1(x) = sign(x) (((sqrt(1 + 4 e (|x| + 1 + e)) - 1) / (2 e))^2 - 1),  e = 0.001

    Deviation: the quotient is computed as 2 (|x| + 1 + e) / (1 + sqrt(1 + 4 e (|x| + 1 + e))), which is
    equal. As written, the difference of two numbers near 1 loses all but three digits in float32.

    Args:
        x: The compressed values, [...].

    Returns:
        The values, [...].
    """
    size = x.abs() + 1.0 + _EPSILON
    quotient = 2.0 * size / (1.0 + (1.0 + 4.0 * _EPSILON * size).sqrt())
    return x.sign() * (quotient.square() - 1.0)


def transformed_n_step_targets(
    q_tp1: torch.Tensor,
    r_t: torch.Tensor,
    discount_t: torch.Tensor,
    mask_t: torch.Tensor,
    num_steps: int,
) -> torch.Tensor:
    """Computes n-step targets of compressed values.

        target_t = h(r_t + discount_t r_{t+1} + .. + discount_t .. discount_{t+n-1} h^-1(q_{t+n}))

    Near the end of the unmasked steps a return has fewer of them; see `n_step_targets`. Source: Kapturowski
    et al. 2019, "Recurrent experience replay in distributed reinforcement learning", eq. 1.

    Args:
        q_tp1: The compressed values of the actions chosen in the following states, [B, T].
        r_t: The rewards, [B, T].
        discount_t: The environment's discounts times gamma, [B, T].
        mask_t: 1 for real steps, 0 for padding, [B, T].
        num_steps: The largest number of steps of a return, n.

    Returns:
        Compressed targets without gradient, [B, T]; 0 at masked steps.

    Raises:
        ValueError: The shapes differ, or `num_steps` is below 1.
    """
    return signed_hyperbolic(n_step_targets(signed_parabolic(q_tp1), r_t, discount_t, mask_t, num_steps))


def sequence_loss(td_error_t: torch.Tensor, mask_t: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Computes the mean over sequences of their weighted squared errors.

        L = mean_b w_b 1/2 sum_t mask_t error_t^2

    Source: as Acme's R2D2, a sum over the steps of a sequence.

    Args:
        td_error_t: The differences of targets and values, [B, T].
        mask_t: 1 for real steps, 0 for padding, [B, T].
        weights: The importance weights, [B].

    Returns:
        The loss, [].

    Raises:
        ValueError: The shapes differ.
    """
    check_shapes(("td_error_t", td_error_t, "BT"), ("mask_t", mask_t, "BT"), ("weights", weights, "B"))
    error_t = torch.where(mask_t > 0, td_error_t, 0.0)
    return (weights * 0.5 * error_t.square().sum(dim=1)).mean()


@torch.no_grad()
def sequence_priorities(td_error_t: torch.Tensor, mask_t: torch.Tensor, max_share: float) -> torch.Tensor:
    """Computes the priorities of sequences.

        p = eta max_t |error_t| + (1 - eta) mean_t |error_t|

    Source: Kapturowski et al. 2019, section 2.3, where eta is 0.9.

    Args:
        td_error_t: The differences of targets and values, [B, T].
        mask_t: 1 for real steps, 0 for padding, [B, T].
        max_share: The share of the largest error, eta, in [0, 1].

    Returns:
        Priorities without gradient, [B]; 0 for a sequence whose steps are all masked.

    Raises:
        ValueError: The shapes differ.
    """
    check_shapes(("td_error_t", td_error_t, "BT"), ("mask_t", mask_t, "BT"))
    happened_t = mask_t > 0
    size_t = torch.where(happened_t, td_error_t.abs(), 0.0)
    mean = size_t.sum(dim=1) / happened_t.sum(dim=1).clamp(min=1)
    return max_share * size_t.amax(dim=1) + (1.0 - max_share) * mean
