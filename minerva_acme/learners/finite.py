"""Batches that are not finite must not be learned from."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import tree

from minerva_acme import specs, types


class NonFinite(Exception):
    """Something that a learner step needs is infinite or not a number."""


def read(tensor: torch.Tensor) -> Any:
    """The numbers of a tensor, on the host. Every learner reads its device through this function alone."""
    return tensor.tolist()


def require_finite(
    tensors: Mapping[str, types.NestedTensor] | Sequence[tuple[str, types.NestedTensor]],
) -> None:
    """Checks tensors, and nests of them, reading from the device once.

    Args:
        tensors: by what they are, in the plural, for the message; or pairs, where names come again.
            Integers are finite.

    Raises:
        NonFinite: an element of one is infinite or not a number; the message names the first such.
    """
    nests = tensors.items() if isinstance(tensors, Mapping) else tensors
    pairs = [
        (specs.leaf_name(name, path), leaf)
        for name, nest in nests
        for path, leaf in ([((), nest)] if isinstance(nest, torch.Tensor) else tree.flatten_with_path(nest))
        if leaf.is_floating_point()
    ]
    if not pairs:
        return
    finite = torch.stack([torch.isfinite(tensor).all() for _, tensor in pairs])
    for (name, _), is_finite in zip(pairs, read(finite), strict=True):
        if not is_finite:
            raise NonFinite(f"the {name} are not finite")
