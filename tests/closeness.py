"""Comparison of numbers that were rounded in another order, on whatever CPU."""

from typing import Any

import torch


def assert_close_to_norm(found: Any, wanted: Any, relative: float = 1e-5) -> None:
    """Checks that no element is off by more than a share of the largest one.

    Where large numbers cancel, an element near 0 has the rounding errors of the large ones, and these differ
    from CPU to CPU: a tolerance relative to each element, or an absolute one, holds on some machines alone.

    Args:
        found: A tensor or an array.
        wanted: The one to compare with, of the same shape.
        relative: The largest difference, as a share of the largest element of `wanted`.
    """
    found, wanted = (torch.as_tensor(x).detach().double() for x in (found, wanted))
    assert found.shape == wanted.shape
    size = float(wanted.abs().max()) if wanted.numel() else 0.0
    torch.testing.assert_close(found, wanted, rtol=0.0, atol=relative * size)
