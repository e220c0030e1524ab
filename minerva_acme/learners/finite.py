"""Checks that stop a learner from learning from batches that are not finite, or absurdly large."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import tree

from minerva_acme import specs, types

# The largest magnitude of a number that a learner computes: Adam squares gradients, and in float32 the square
# of a number above 1.8e19 overflows. Data of up to `constraints.LARGEST` can still be summed and multiplied.
LARGEST = 1e18
WAY_OUT = "Clip extreme rewards and observations with np.clip, in a wrapper of the environment."

READ_PERIOD = 100
"""The steps from one look at what a device has found to the next. On a CPU a learner looks in every step."""


class NonFinite(Exception):
    """Raised if a value in a learner step is infinite, not a number or beyond `finite.LARGEST`."""


def read(tensor: torch.Tensor) -> Any:
    """Returns the numbers of a tensor, on the host. Learners read their device only through this function."""
    return tensor.tolist()


def is_read_at_once(tensor: torch.Tensor) -> bool:
    """Returns whether the host need not wait for a tensor: float32 on a CPU.

    Tests use float64 in place of a GPU.
    """
    return tensor.device.type == "cpu" and tensor.dtype == torch.float32


class Sizes(NamedTuple):
    """The largest magnitudes of some tensors."""

    names: Sequence[str]  # what each tensor is, in the plural
    values: torch.Tensor  # [n], on their device; NaN if an element is NaN

    def are_finite(self) -> torch.Tensor:
        """Returns, on the device, whether all are finite and up to `LARGEST`: [], bool."""
        return (self.values <= LARGEST).all()

    def check(self) -> None:
        """Reads the values; raises as `require_finite` does."""
        check(self.names, read(self.values))


def together(several: Sequence[Sizes]) -> Sizes:
    """Returns sizes as one."""
    names = [name for sizes in several for name in sizes.names]
    return Sizes(names, torch.cat([sizes.values for sizes in several]))


def check(names: Sequence[str], sizes: Sequence[float]) -> None:
    """Raises `NonFinite` for the first size, by its name, that is not finite or beyond `LARGEST`."""
    for name, size in zip(names, sizes, strict=True):
        if not size <= LARGEST:
            is_finite = math.isfinite(size)
            what = f"as large as {size:g}, beyond {LARGEST:g}" if is_finite else "not finite"
            raise NonFinite(f"the {name} are {what}")


def sizes(tensors: Mapping[str, types.NestedTensor]) -> Sizes | None:
    """Measures tensors and nests of tensors for `require_finite`; None if all are surely finite."""
    leaves = [
        (specs.leaf_name(name, path), leaf)
        for name, nest in tensors.items()
        for path, leaf in ([((), nest)] if isinstance(nest, torch.Tensor) else tree.flatten_with_path(nest))
        if leaf.is_floating_point() and leaf.numel() and not _is_surely_finite(leaf)
    ]
    if not leaves:
        return None
    names, tensors_of_names = zip(*leaves, strict=True)
    return Sizes(names, torch.stack(torch._foreach_norm(tensors_of_names, math.inf)))


def require_finite(tensors: Mapping[str, types.NestedTensor]) -> None:
    """Checks tensors, and nests of tensors, reading from the device once.

    Args:
        tensors: The tensors, keyed by what they are, in the plural, for the message. Integers are always
            finite.

    Raises:
        NonFinite: An element is infinite, not a number or beyond `LARGEST`; the message names the first
            such tensor.
    """
    if found := sizes(tensors):
        found.check()


def describe_largest(batch: types.NestedTensor) -> str:
    """Describes where to look after a step that was not finite, such as " (`reward[3, 0]` ... is nan)".

    The text ends a sentence. It names the first field that is not finite, or else the field with the largest
    number; it is "" for an empty batch.
    """
    largest, name = 0.0, ""
    for path, leaf in tree.flatten_with_path(batch):
        if not leaf.is_floating_point() or not leaf.numel():
            continue
        sizes = leaf.abs().nan_to_num(nan=torch.inf, posinf=torch.inf).flatten()
        place = int(sizes.argmax())
        value = leaf.flatten()[place].item()
        if sizes[place] > abs(largest):
            largest, index = value, [int(i) for i in np.unravel_index(place, leaf.shape)]
            name = f"`{'.'.join(map(str, path))}{index}`"
        if not math.isfinite(value):
            break
    if not name:
        return ""
    if abs(largest) <= LARGEST:
        return f" (the largest number of the batch is {largest:g}, {name})"
    return f" ({name} of the batch is {largest:g})"


def _is_surely_finite(tensor: torch.Tensor) -> bool:
    """Returns whether one product on the host proves it, in a third of the time of checking each number."""
    if tensor.device.type != "cpu" or tensor.dtype != torch.float32 or not tensor.is_contiguous():
        return False
    array = (tensor.detach() if tensor.requires_grad else tensor).numpy()
    return bool(specs.square(array.ravel()) <= LARGEST)
