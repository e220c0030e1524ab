"""The check that stands at the door of every loss."""

from typing import Any

import torch

from minerva_acme.distributions import MultiCategorical


def check_shapes(*tensors: tuple[str, torch.Tensor, str]) -> None:
    """Checks that tensors have the axes they should and that axes of one name have one size.

    Args:
        tensors: (name, tensor, axes) each, an axis being one letter: ("actions", actions, "BND"). With
            "..." in front any axes may lead, the same ones in all tensors that have it: "...K".

    Raises:
        ValueError: a tensor has another number of axes, or a size that differs from the one an
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
        if (
            num_leading < 0
            or len(shape) != len(letters) + num_leading
            or (letters != axes and shape[:num_leading] != leading)
            or any(
                sizes.setdefault(axis, size) != size
                for axis, size in zip(letters, shape[num_leading:], strict=True)
            )
        ):
            any_axes = ["..." if leading is None else f"... = {list(leading)}"] if letters != axes else []
            named = [f"{axis} = {sizes[axis]}" if axis in sizes else axis for axis in letters]
            raise ValueError(f"`{name}` must have shape [{', '.join(any_axes + named)}], got {list(shape)}.")


def axes_of(name: str, distribution: Any, axes: str) -> list[tuple[str, torch.Tensor, str]]:
    """What `check_shapes` takes for the tensors that a distribution is a named tuple of.

    Args:
        name: of the distribution; its tensors are called `name.field`.
        distribution: one that is not a named tuple has nothing to check.
        axes: of each of its tensors, without that of the values of a `MultiCategorical`'s choices.
    """
    if isinstance(distribution, MultiCategorical):
        axes += "K"
    parts = distribution._asdict() if hasattr(distribution, "_asdict") else {}
    return [
        (f"{name}.{field}", part, axes) for field, part in parts.items() if isinstance(part, torch.Tensor)
    ]
