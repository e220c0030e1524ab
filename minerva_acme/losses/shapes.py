"""The check that stands at the door of every loss."""

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
