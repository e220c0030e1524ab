"""Batches whose images are shifted at random.

Shapes: B batch; H, W height and width of an image; `...` leading axes, such as [B] or [B, T + 1].
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
import tree

from minerva_acme import networks, types
from minerva_acme.learners import samples

_FIELDS = ("observation", "next_observation")


class RandomShift(Iterator[Any]):
    """A dataset's samples, with the images of their observations randomly shifted.

    Each image is moved by whole pixels, up to `num_pixels` vertically and horizontally, and all shifts are
    equally likely. Pixels that enter at a border repeat the border's pixels. Nothing is interpolated, so
    images of bytes remain bytes.

    Every observation has its own shift: the two of a transition, and each one in a sequence. The frames of a
    stack move together, and so do channels; in a nest, each image moves separately. Other numbers stay.

    Source: Kostrikov, Yarats and Fergus 2021, "Image augmentation is all you need" (DrQ), which pads by 4
    pixels and crops. DrQ-v2 (Yarats et al. 2021, "Mastering visual continuous control") does the same by
    interpolation at whole pixels.
    """

    def __init__(
        self,
        dataset: Iterator[Any],
        *,
        observation_spec: types.NestedSpec,
        num_pixels: int,
        generator: torch.Generator,
    ) -> None:
        """Wraps a dataset.

        Args:
            dataset: The dataset, whose samples have an `observation` in their `data`, and may have a
                `next_observation`.
            observation_spec: The spec that determines which leaves are images; see `networks.is_image`.
            num_pixels: The largest shift, >= 1.
            generator: The generator for the shifts, on the batches' device; a learner's own is saved with it.
        """
        if num_pixels < 1:
            raise ValueError(f"`num_pixels` must be >= 1, got {num_pixels}. For no shift, omit RandomShift.")
        self._dataset = samples.checked_samples(dataset, modules=(), device=generator.device)
        self._specs = tree.flatten(observation_spec)
        self._num_pixels = num_pixels
        self._generator = generator

    def __next__(self) -> Any:
        sample = next(self._dataset)
        data = sample.data
        shifted = {name: self._shift(getattr(data, name)) for name in _FIELDS if name in data._fields}
        return sample._replace(data=data._replace(**shifted))

    def _shift(self, observations: types.NestedTensor) -> types.NestedTensor:
        leaves = [
            shift_images(leaf, spec.shape, self._num_pixels, self._generator)
            if networks.is_image(spec)
            else leaf
            for spec, leaf in zip(self._specs, tree.flatten(observations), strict=True)
        ]
        return tree.unflatten_as(observations, leaves)


def shift_images(
    images: torch.Tensor, shape: tuple[int, ...], num_pixels: int, generator: torch.Generator
) -> torch.Tensor:
    """Shifts each image by a random shift of up to `num_pixels` in both directions.

        shifted[y, x] = image[clip(y + dy, 0, H - 1), clip(x + dx, 0, W - 1)]

    Args:
        images: The images, [..., *shape], of any dtype.
        shape: The shape of an image or of a stack of images, as in `networks.ImageEncoder`.
        num_pixels: The largest shift.
        generator: The generator for the shifts, on the device of the images.

    Returns:
        The shifted images, with the shape and dtype of `images`.
    """
    height_axis, width_axis = networks.image_axes(shape)
    count = math.prod(images.shape[: images.ndim - len(shape)])
    parts, channels = math.prod(shape[:height_axis]), math.prod(shape[width_axis + 1 :])
    height, width, device, most = shape[height_axis], shape[width_axis], images.device, num_pixels
    rows_of = images.reshape(count * parts * height, width, channels)
    repeats = (-1, most, -1)
    padded = torch.cat([rows_of[:, :1].expand(repeats), rows_of, rows_of[:, -1:].expand(repeats)], dim=1)
    dy, dx = torch.randint(-most, most + 1, (2, count, 1), generator=generator, device=device)
    y = (torch.arange(height, device=device) + dy).clamp(0, height - 1)  # [B, H]
    # Each row of the result is part of a padded row, so one call copies all of them.
    row = torch.arange(count * parts, device=device).view(count, parts, 1) * height + y[:, None]
    starts = row * (width + 2 * most) + (dx + most)[:, None]  # in pixels
    pieces = padded.view(-1).unfold(0, width * channels, channels)
    return pieces.index_select(0, starts.flatten()).view(images.shape)
