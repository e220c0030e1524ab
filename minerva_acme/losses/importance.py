"""Weights that correct for the sampling probabilities of a prioritised table.

Shapes: B batch.
"""

import torch

from minerva_acme.losses.shapes import check_shapes


def importance_weights(probability: torch.Tensor, table_size: torch.Tensor, exponent: float) -> torch.Tensor:
    """Computes the weight of each item of a batch in the loss.

        w_i = (N P(i))^-beta / max_j (N P(j))^-beta

    Source: Schaul et al. 2016, "Prioritized experience replay", section 3.4. As in the paper, the largest
    weight is 1, so that weights only make steps smaller; the maximum is taken over the batch.

    Args:
        probability: The probability P with which each item was drawn, above 0, [B].
        table_size: The number N of items in the table when the item was drawn, [B].
        exponent: The exponent beta; 0 corrects nothing, 1 corrects fully.

    Returns:
        Weights in (0, 1], float32 [B].

    Raises:
        ValueError: The shapes differ.
    """
    check_shapes(("probability", probability, "B"), ("table_size", table_size, "B"))
    # In float64: with millions of items, N P(i) is a product of very large and very small numbers.
    weights = (table_size.double() * probability.double()) ** -exponent
    return (weights / weights.max()).float()
