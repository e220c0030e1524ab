"""From what an environment shows to features: the encoders that come before torsos.

An encoder is a module with the size of its features as `output_size`:

    encoder(observation, a nest of tensors [..., *leaf]) -> features [..., F]

Shapes: F features; H, W height and width of an image, C its channels; k stacked frames; `...` any leading
axes, the same of every leaf.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
import tree
from torch import nn

from minerva_acme import specs, types
from minerva_acme.distributions import Distribution
from minerva_acme.networks.linear import orthogonal_linear

Convolutions = Sequence[tuple[int, int, int]]
"""Of each layer: channels, side of the kernel, stride."""

NATURE: Convolutions = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""For images of 36 pixels and more on each side. Source: Mnih et al. 2015, "Human-level control through
deep reinforcement learning"; with 512 features."""
MINATAR: Convolutions = ((16, 3, 1),)
"""For smaller ones. Source: Young and Tian 2019, "MinAtar"; with 128 features."""
SMALL: Convolutions = ((16, 5, 3), (32, 3, 2), (32, 3, 2))
"""For images as `NATURE`'s in half of its time on a CPU; with 128 features. Of no paper."""

ImageEncoderName: TypeAlias = Literal["nature", "small"]
"""Of the layers for images of 36 pixels and more on each side."""

_SMALLEST_OF_NATURE = 36  # pixels, of which the last kernel sees one place
_SMALLEST_OF_MINATAR = 3
_LARGEST_BYTE = 255.0
_GAIN = math.sqrt(2.0)  # of layers before ReLU


class Encoder(nn.Module):
    """Makes features of observations."""

    output_size: int
    """F."""


class IdentityEncoder(Encoder):
    """A vector as it is."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.output_size = size

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """[..., F] -> the same tensor."""
        return observation


class FlatEncoder(Encoder):
    """Numbers of any shape and dtype, as a float32 vector."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self._ndim = len(shape)
        self.output_size = math.prod(shape)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """[..., *shape] -> float32 [..., F]."""
        leading = observation.shape[: observation.ndim - self._ndim]
        return observation.reshape(*leading, self.output_size).float()


class OneHotEncoder(Encoder):
    """One of several values, as a vector with a 1 in its place."""

    def __init__(self, num_values: int) -> None:
        super().__init__()
        self.output_size = num_values

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Integers [...] -> float32 [..., F]."""
        places = torch.arange(self.output_size, device=observation.device)
        return (observation[..., None] == places).float()


class ImageEncoder(Encoder):
    """Convolutions and a linear layer, with ReLU, of images of bytes, which are scaled to [0, 1] here.

    Where the scaling is, replay and what the learner gets stay at a byte a number. Weights start orthogonal
    times sqrt(2), biases at zero.

    An image is [H, W], [H, W, C] or, where the first axis is shorter than the last, [C, H, W]. A stack of
    frames, [k, H, W, C], is an image of k * C channels.
    """

    def __init__(
        self,
        shape: Sequence[int],
        *,
        convolutions: Convolutions | None = None,
        output_size: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        """Makes the layers.

        Args:
            shape: of an image or of a stack of them, without the leading axes.
            convolutions: of each layer; None: `NATURE`, or `MINATAR` for small images.
            output_size: F; None: 512 for `NATURE`, else 128.
            generator: draws the initial weights; None is torch's global one.

        Raises:
            ValueError: the shape is not that of an image, or the image too small for the convolutions.
        """
        super().__init__()
        if not 2 <= len(shape) <= 4 or min(shape) < 1:
            raise ValueError(
                f"`shape` must be that of an image, [H, W], [H, W, C], [C, H, W] or [k, H, W, C], got "
                f"{tuple(shape)}."
            )
        self._shape = tuple(shape)
        channels, height, width = _channels_and_sides(shape)
        is_large = min(height, width) >= _SMALLEST_OF_NATURE
        if convolutions is None:
            convolutions = NATURE if is_large else MINATAR
        if output_size is None:
            output_size = 512 if convolutions == NATURE else 128
        layers: list[nn.Module] = []
        for channels_out, kernel, stride in convolutions:
            if min(height, width) < kernel:
                raise ValueError(
                    f"An image {tuple(shape)} is too small for the convolutions {tuple(convolutions)}: a "
                    f"kernel of {kernel} meets {height} x {width} pixels. Give fewer, or smaller strides."
                )
            layers += [_convolution(channels, channels_out, kernel, stride, generator), nn.ReLU()]
            channels = channels_out
            height, width = ((side - kernel) // stride + 1 for side in (height, width))
        self.convolutions = nn.Sequential(*layers)
        self.head = orthogonal_linear(channels * height * width, output_size, _GAIN, generator)
        self.output_size = output_size

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Bytes [..., *shape] -> [..., F]."""
        leading = observation.shape[: observation.ndim - len(self._shape)]
        images = observation.reshape(math.prod(leading), *self._shape)
        maps = self.convolutions(self._image(images).float() / _LARGEST_BYTE)
        return torch.relu(self.head(maps.flatten(1))).reshape(*leading, self.output_size)

    def _image(self, images: torch.Tensor) -> torch.Tensor:
        """n images as a convolution takes them, [n, C, H, W]."""
        if images.ndim == 3:
            return images[:, None]
        if images.ndim == 5:
            return images.permute(0, 1, 4, 2, 3).flatten(1, 2)
        return images if _has_channels_first(self._shape) else images.permute(0, 3, 1, 2)


class NestEncoder(Encoder):
    """Each leaf of a nest by an encoder of its own, the features side by side in the order of `tree`."""

    def __init__(self, encoders: Sequence[Encoder]) -> None:
        """Args: encoders: of the leaves, at least one, in the order of `tree.flatten`."""
        super().__init__()
        self.encoders = nn.ModuleList(encoders)
        self.output_size = sum(encoder.output_size for encoder in encoders)

    def forward(self, observation: types.NestedTensor) -> torch.Tensor:
        """A nest of [..., *leaf] -> [..., F]."""
        leaves = zip(self.encoders, tree.flatten(observation), strict=True)
        return torch.cat([encoder(leaf) for encoder, leaf in leaves], dim=-1)


class EncodedCritic(nn.Module):
    """A critic behind its encoder."""

    def __init__(self, encoder: nn.Module, critic: nn.Module) -> None:
        """Takes both."""
        super().__init__()
        self.encoder = encoder
        self.critic = critic

    def forward(self, observation: types.NestedTensor, *action: torch.Tensor) -> Any:
        """What the critic says at each observation, and action where it takes one."""
        return self.critic(self.encoder(observation), *action)

    def first(self, observation: types.NestedTensor, *action: torch.Tensor) -> Any:
        """What the first critic of an ensemble says."""
        critic: Any = self.critic
        return critic.members[0](self.encoder(observation), *action)

    def loss(self, prediction: Any, target: Any, mask: torch.Tensor) -> torch.Tensor:
        """The critic's."""
        critic: Any = self.critic
        loss: torch.Tensor = critic.loss(prediction, target, mask)
        return loss


class EncodedPolicy(nn.Module):
    """A policy behind its encoder."""

    def __init__(self, encoder: nn.Module, policy: nn.Module) -> None:
        """Takes both; they are shared, not copied."""
        super().__init__()
        self.encoder = encoder
        self.policy = policy

    def forward(self, observation: types.NestedTensor) -> Distribution:
        """The policy at each observation."""
        policy: Distribution = self.policy(self.encoder(observation))
        return policy


def make_encoder(
    observation_spec: types.NestedSpec,
    *,
    generator: torch.Generator | None,
    image_encoder: ImageEncoderName = "nature",
) -> Encoder:
    """Makes an encoder for any observations.

        one float32 vector         as it is: `IdentityEncoder`, which has no parameters
        bytes of 2 to 4 axes       `ImageEncoder`, but where they are less than 3 x 3
        one of several values      `OneHotEncoder`
        any other numbers          `FlatEncoder`
        a nest                     `NestEncoder` of those of its leaves

    Args:
        observation_spec: a spec or a nest of them; see `agents.requirements` for what agents take.
        generator: draws the initial weights; None is torch's global one.
        image_encoder: the layers for images of 36 pixels and more on each side: `NATURE` or `SMALL`.
    """
    if isinstance(observation_spec, specs.Array):
        return _make_leaf_encoder(observation_spec, generator, image_encoder)
    leaves = tree.flatten(observation_spec)
    return NestEncoder([_make_leaf_encoder(leaf, generator, image_encoder) for leaf in leaves])


def is_vector(spec: types.NestedSpec) -> bool:
    """Whether observations are one float32 vector, which needs no encoder."""
    return isinstance(spec, specs.Array) and spec.dtype == np.float32 and len(spec.shape) == 1


def is_image(spec: specs.Array) -> bool:
    """Whether an observation is taken to be an image, or a stack of images: bytes, 3 x 3 of them or more."""
    if spec.dtype != np.uint8 or not 2 <= len(spec.shape) <= 4:
        return False
    return min(_channels_and_sides(spec.shape)[1:]) >= _SMALLEST_OF_MINATAR


def image_axes(shape: Sequence[int]) -> tuple[int, int]:
    """The axes of height and width in the shape of an image, or of a stack of them."""
    return (1, 2) if len(shape) == 4 or _has_channels_first(shape) else (0, 1)


def _make_leaf_encoder(
    spec: specs.Array, generator: torch.Generator | None, image_encoder: ImageEncoderName
) -> Encoder:
    if isinstance(spec, specs.DiscreteArray):
        return OneHotEncoder(spec.num_values)
    if is_image(spec):
        is_large = min(_channels_and_sides(spec.shape)[1:]) >= _SMALLEST_OF_NATURE
        convolutions = SMALL if is_large and image_encoder == "small" else None
        return ImageEncoder(spec.shape, convolutions=convolutions, generator=generator)
    if is_vector(spec):
        return IdentityEncoder(spec.shape[0])
    return FlatEncoder(spec.shape)


def _has_channels_first(shape: Sequence[int]) -> bool:
    return len(shape) == 3 and shape[0] < shape[2]


def _channels_and_sides(shape: Sequence[int]) -> tuple[int, int, int]:
    """C, H and W of an image, or of a stack of them."""
    if len(shape) == 2:
        return 1, shape[0], shape[1]
    if len(shape) == 4:
        return shape[0] * shape[3], shape[1], shape[2]
    height, width, channels = (shape[1], shape[2], shape[0]) if _has_channels_first(shape) else shape
    return channels, height, width


def _convolution(
    channels_in: int, channels_out: int, kernel: int, stride: int, generator: torch.Generator | None
) -> nn.Conv2d:
    # Torch draws weights of its own here, which must not move the global generator.
    with torch.random.fork_rng(devices=[]):
        layer = nn.Conv2d(channels_in, channels_out, kernel, stride)
    nn.init.orthogonal_(layer.weight, gain=_GAIN, generator=generator)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer
