"""The shape check at the start of every loss."""

from typing import Any

import torch

from minerva_acme.distributions import MultiCategorical


def check_shapes(*tensors: tuple[str, torch.Tensor, str]) -> None:
    """Checks that tensors have the expected axes and that axes with the same name have the same size.

    Args:
        tensors: Triples (name, tensor, axes) with one letter per axis: ("actions", actions, "BND"). "..." in
            front stands for any leading axes, the same in all tensors that have it: "...K".

    Raises:
        ValueError: A tensor has a different number of axes, or a size that differs from the size that an
            earlier tensor gave that axis. Nothing is ever broadcast.
    """
    leading: tuple[int, ...] | None = None
    sizes: dict[str, int] = {}
    for name, tensor, axes in tensors:
        shape = tuple(tensor.shape)
        letters = axes.removeprefix("...")
        num_leading = len(shape) - len(letters) if letters != axes else 0
        if letters != axes and num_leading >= 0 and leading is None:
            leading = shape[:num_leading]
        fits = 0 <= num_leading == len(shape) - len(letters) and (
            letters == axes or shape[:num_leading] == leading
        )
        for axis, size in zip(letters, shape[num_leading:], strict=False):
            fits = fits and sizes.setdefault(axis, size) == size
        if not fits:
            any_axes = ["..." if leading is None else f"... = {list(leading)}"] if letters != axes else []
            named = [f"{axis} = {sizes[axis]}" if axis in sizes else axis for axis in letters]
            raise ValueError(f"`{name}` must have shape [{', '.join(any_axes + named)}], got {list(shape)}.")


def axes_of(name: str, distribution: Any, axes: str) -> list[tuple[str, torch.Tensor, str]]:
    """Returns the arguments of `check_shapes` for the tensors of a distribution that is a named tuple.

    Args:
        name: The name of the distribution; its tensors are called `name.field`.
        distribution: The distribution; if it is not a named tuple, there is nothing to check.
        axes: The axes of each of its tensors, without the values' axis of a `MultiCategorical`.
    """
    if isinstance(distribution, MultiCategorical):
        axes += "K"
    parts = distribution._asdict() if hasattr(distribution, "_asdict") else {}
    return [
        (f"{name}.{field}", part, axes) for field, part in parts.items() if isinstance(part, torch.Tensor)
    ]
