"""The check that stands at the door of every loss."""

from typing import Any

import torch


def check_shapes(*tensors: tuple[str, torch.Tensor, str]) -> None:
    """Checks that tensors have the axes they should and that axes of one name have one size.

    Args:
        tensors: (name, tensor, axes) each, an axis being one letter: ("actions", actions, "BND").

    Raises:
        ValueError: a tensor has another number of axes, or a size that differs from the one an
            earlier tensor gave that axis. Nothing is ever broadcast.
    """
    sizes: dict[str, int] = {}
    for name, tensor, axes in tensors:
        shape = tuple(tensor.shape)
        if len(shape) != len(axes) or any(
            sizes.setdefault(axis, size) != size for axis, size in zip(axes, shape, strict=True)
        ):
            expected = ", ".join(f"{axis} = {sizes[axis]}" if axis in sizes else axis for axis in axes)
            raise ValueError(f"`{name}` must have shape [{expected}], got {list(shape)}.")


def axes_of(name: str, distribution: Any, axes: str) -> list[tuple[str, torch.Tensor, str]]:
    """What `check_shapes` takes for the tensors that a distribution is a named tuple of.

    Args:
        name: of the distribution; its tensors are called `name.field`.
        distribution: one that is not a named tuple has nothing to check.
        axes: of each of its tensors.
    """
    fields = distribution._asdict().items() if isinstance(distribution, tuple) else ()
    return [(f"{name}.{field}", part, axes) for field, part in fields if isinstance(part, torch.Tensor)]
