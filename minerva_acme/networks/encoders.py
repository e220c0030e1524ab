"""Encoders, which turn observations into features. They come before torsos.

An encoder is a module with the size of its features as `output_size`:

    encoder(observation, a nest of tensors [..., *leaf]) -> features [..., F]
Shapes: F features; H, W height and width of an image, C its channels; k stacked frames; `...` any leading
axes, the same for every leaf.
"""

import copy
import math
from collections.abc import Sequence
from typing import Any, Literal, Self, TypeAlias, TypeVar

import numpy as np
import torch
import tree
from torch import nn

from minerva_acme import specs, types
from minerva_acme.distributions import Distribution
from minerva_acme.networks import linear
from minerva_acme.networks.linear import orthogonal_linear
from minerva_acme.networks.memory import Memory, MemoryState

Module = TypeVar("Module", bound=nn.Module)
Convolutions = Sequence[tuple[int, int, int]]
"""For each layer: the number of channels, the side of the kernel and the stride."""

NATURE: Convolutions = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""For images of at least 36 pixels on each side. Source: Mnih et al. 2015, "Human-level control through
deep reinforcement learning"; with 512 features."""
MINATAR: Convolutions = ((16, 3, 1),)
"""For smaller images. Source: Young and Tian 2019, "MinAtar"; with 128 features."""
SMALL: Convolutions = ((16, 5, 3), (32, 3, 2), (32, 3, 2))
"""For the same images as `NATURE`, in half the time on a CPU; with 128 features. Not from a paper."""

ImageEncoderName: TypeAlias = Literal["nature", "small"]
"""The name of the layers for images of at least 36 pixels on each side."""

_SMALLEST_OF_NATURE = 36  # pixels, at which the output of the last convolution is 1 x 1
_SMALLEST_OF_MINATAR = 3
_LARGEST_BYTE = 255.0
_GAIN = math.sqrt(2.0)  # for layers before a ReLU


class Encoder(nn.Module):
    """A module that turns observations into features."""

    output_size: int
    """F."""


class IdentityEncoder(Encoder):
    """An encoder that returns a vector as it is."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.output_size = size

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Returns the same tensor, [..., F]."""
        return observation


class FlatEncoder(Encoder):
    """An encoder that turns numbers of any shape and dtype into a float32 vector."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self._ndim = len(shape)
        self.output_size = math.prod(shape)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Reshapes [..., *shape] -> float32 [..., F]."""
        leading = observation.shape[: observation.ndim - self._ndim]
        return observation.reshape(*leading, self.output_size).float()


class OneHotEncoder(Encoder):
    """An encoder that turns one of several discrete values into a one-hot vector."""

    def __init__(self, num_values: int) -> None:
        super().__init__()
        self.output_size = num_values

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Encodes integers [...] -> float32 [..., F]."""
        places = torch.arange(self.output_size, device=observation.device)
        return (observation[..., None] == places).float()


class ImageEncoder(Encoder):
    """Convolutions and a linear layer, with ReLU, for images of bytes, which are scaled to [0, 1] here.

    Because the scaling happens here, replay and the learner's batches hold one byte per number. The weights
    start orthogonal times sqrt(2), the biases at zero.

    An image is [H, W], [H, W, C] or, if the first axis is shorter than the last, [C, H, W]. A stack of
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
            shape: The shape of an image or of a stack of images, without the leading axes.
            convolutions: The settings of each layer; None is `NATURE`, or `MINATAR` for small images.
            output_size: F; None is 512 for `NATURE`, else 128.
            generator: The generator for the initial weights; None uses torch's global generator.

        Raises:
            ValueError: The shape is not an image's, or the image is too small for the convolutions.
        """
        super().__init__()
        if not 2 <= len(shape) <= 4 or min(shape) < 1:
            raise ValueError(
                f"`shape` must be an image's: [H, W], [H, W, C], [C, H, W] or [k, H, W, C], got "
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
                    f"An image {tuple(shape)} is too small for the convolutions {tuple(convolutions)}: "
                    f"a kernel of {kernel} meets {height} x {width} pixels. Use fewer or smaller ones."
                )
            layers += [_convolution(channels, channels_out, kernel, stride, generator), nn.ReLU()]
            channels = channels_out
            height, width = ((side - kernel) // stride + 1 for side in (height, width))
        self.convolutions = nn.Sequential(*layers)
        self.head = orthogonal_linear(channels * height * width, output_size, _GAIN, generator)
        self.output_size = output_size

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Encodes bytes [..., *shape] -> [..., F]."""
        leading = observation.shape[: observation.ndim - len(self._shape)]
        images = observation.reshape(math.prod(leading), *self._shape)
        maps = self.convolutions(self._image(images).float() / _LARGEST_BYTE)
        return torch.relu(self.head(maps.flatten(1))).reshape(*leading, self.output_size)

    def _image(self, images: torch.Tensor) -> torch.Tensor:
        """Permutes n images to the layout that a convolution takes, [n, C, H, W]."""
        if images.ndim == 3:
            return images[:, None]
        if images.ndim == 5:
            return images.permute(0, 1, 4, 2, 3).flatten(1, 2)
        return images if _has_channels_first(self._shape) else images.permute(0, 3, 1, 2)


class NestEncoder(Encoder):
    """An encoder of a nest: one encoder for each leaf, the features joined in the order of `tree`."""

    def __init__(self, encoders: Sequence[Encoder]) -> None:
        """Takes the encoders of the leaves, at least one, in the order of `tree.flatten`."""
        super().__init__()
        self.encoders = nn.ModuleList(encoders)
        self.output_size = sum(encoder.output_size for encoder in encoders)

    def forward(self, observation: types.NestedTensor) -> torch.Tensor:
        """Encodes a nest of [..., *leaf] -> [..., F]."""
        leaves = zip(self.encoders, tree.flatten(observation), strict=True)
        return torch.cat([encoder(leaf) for encoder, leaf in leaves], dim=-1)


def with_parts(module: Module, **parts: nn.Module | None) -> Module:
    """Returns a module of the same class with some parts replaced; everything else is shared, not copied."""
    made = copy.copy(module)
    made._modules = {**module._modules, **parts}
    return made


class _Encoded(nn.Module):
    """A module with an encoder, which may be a `RecurrentEncoder`, in front of it."""

    encoder: nn.Module

    @property
    def memory(self) -> Memory | None:
        """The encoder's memory of the episode, or None."""
        memory = getattr(self.encoder, "memory", None)
        return memory if isinstance(memory, Memory) else None

    def remember(
        self, observation: types.NestedTensor, state: MemoryState
    ) -> tuple[torch.Tensor, MemoryState]:
        """Makes one step of the memory; see `RecurrentEncoder.remember`."""
        encoder: Any = self.encoder
        remembered: tuple[torch.Tensor, MemoryState] = encoder.remember(observation, state)
        return remembered

    def without_memory(self) -> Self:
        """Returns the same module for the memory's features."""
        encoder: Any = self.encoder
        return with_parts(self, encoder=IdentityEncoder(encoder.output_size))


class EncodedCritic(_Encoded):
    """A critic with an encoder in front of it."""

    def __init__(self, encoder: nn.Module, critic: nn.Module) -> None:
        """Takes the encoder and the critic."""
        super().__init__()
        self.encoder = encoder
        self.critic = critic

    def forward(self, observation: types.NestedTensor, *action: torch.Tensor) -> Any:
        """Returns the critic's prediction at each observation, and at each action if it takes actions."""
        return self.critic(self.encoder(observation), *action)

    def first(self, observation: types.NestedTensor, *action: torch.Tensor) -> Any:
        """Returns the prediction of the first critic of an ensemble."""
        return self(observation, *action).members[0]

    def loss(self, prediction: Any, target: Any, mask: torch.Tensor) -> torch.Tensor:
        """Returns the critic's loss."""
        critic: Any = self.critic
        loss: torch.Tensor = critic.loss(prediction, target, mask)
        return loss


class EncodedPolicy(_Encoded):
    """A policy with an encoder in front of it."""

    def __init__(self, encoder: nn.Module, policy: nn.Module) -> None:
        """Takes the encoder and the policy; they are shared, not copied."""
        super().__init__()
        self.encoder = encoder
        self.policy = policy

    def forward(self, observation: types.NestedTensor) -> Distribution:
        """Computes the policy at each observation."""
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
        bytes of 2 to 4 axes       `ImageEncoder`, unless smaller than 3 x 3
        one of several values      `OneHotEncoder`
        any other numbers          `FlatEncoder`
        a nest                     `NestEncoder` of its leaves' encoders

    Args:
        observation_spec: A spec or a nest of specs; see `agents.requirements` for what agents accept.
        generator: The generator for the initial weights; None uses torch's global generator.
        image_encoder: The layers for images of at least 36 pixels on each side: `NATURE` or `SMALL`.
    """
    if isinstance(observation_spec, specs.Array):
        return _make_leaf_encoder(observation_spec, generator, image_encoder)
    leaves = tree.flatten(observation_spec)
    return NestEncoder([_make_leaf_encoder(leaf, generator, image_encoder) for leaf in leaves])


def is_vector(spec: types.NestedSpec) -> bool:
    """Returns whether observations are one float32 vector, which needs no encoder."""
    return isinstance(spec, specs.Array) and spec.dtype == np.float32 and len(spec.shape) == 1


def is_image(spec: specs.Array) -> bool:
    """Returns whether an observation is treated as an image or a stack of images: bytes, at least 3 x 3."""
    if spec.dtype != np.uint8 or not 2 <= len(spec.shape) <= 4:
        return False
    return min(_channels_and_sides(spec.shape)[1:]) >= _SMALLEST_OF_MINATAR


def image_axes(shape: Sequence[int]) -> tuple[int, int]:
    """Returns the axes of height and width in the shape of an image, or of a stack of images."""
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
    """Returns C, H and W of an image, or of a stack of images."""
    if len(shape) == 2:
        return 1, shape[0], shape[1]
    if len(shape) == 4:
        return shape[0] * shape[3], shape[1], shape[2]
    height, width, channels = (shape[1], shape[2], shape[0]) if _has_channels_first(shape) else shape
    return channels, height, width


def _convolution(
    channels_in: int, channels_out: int, kernel: int, stride: int, generator: torch.Generator | None
) -> nn.Conv2d:
    layer = linear.unset(nn.Conv2d, channels_in, channels_out, kernel, stride)
    nn.init.orthogonal_(layer.weight, gain=_GAIN, generator=generator)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer
