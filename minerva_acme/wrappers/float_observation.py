"""Observations of any numbers, as floats for a network."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import dm_env
import numpy as np
import tree

from minerva_acme import specs
from minerva_acme.wrappers import leafwise, transforms

_LARGEST = 1024  # the most numbers that one discrete part may become; larger vectors are left to an encoder
_LARGEST_BYTE = 255
_TWO = 2  # a choice of two values is already a 0 or a 1


class FloatObservationWrapper(transforms.ObservationTransformWrapper):
    """Turns discrete, boolean and integer leaves into float32.

        observation                                      becomes
        one of n values (`DiscreteArray`)                a one-hot vector of n numbers
        integers between bounds (`MultiDiscrete`)        a one-hot vector of each, concatenated
        integers in [0, 1] (`MultiBinary`), booleans     0.0 and 1.0
        a vector of bytes                                scaled from its bounds to [0, 1]
        other integers                                   the same numbers
        booleans of 3 axes and more (a grid of planes)   an image of bytes, 0 and 255

    Floats are unchanged, and so are bytes of two or more axes, which are images. If one-hot vectors would
    have more than 1024 numbers, a discrete value is unchanged and several integers become plain numbers.
    """

    def __init__(self, environment: dm_env.Environment) -> None:
        spec = environment.observation_spec()
        super().__init__(
            environment,
            transform=leafwise.apply_each(tree.map_structure(lambda leaf: _as_float(leaf).convert, spec)),
            spec=tree.map_structure(lambda leaf: _as_float(leaf).spec, spec),
        )


def becomes_float(spec: specs.Array) -> bool:
    """Returns whether the wrapper changes this part of the observation."""
    return _as_float(spec).spec is not spec


class _Conversion(NamedTuple):
    spec: specs.Array  # of the converted leaf
    convert: Callable[[Any], Any]


def _as_float(spec: specs.Array) -> _Conversion:
    """Returns the conversion of a leaf."""
    kind, num_axes = spec.dtype.kind, len(spec.shape)
    is_byte = spec.dtype == np.uint8
    if kind not in "biu" or (is_byte and num_axes > 1):
        return _Conversion(spec, leafwise.same)
    if kind == "b" and num_axes > 2:
        image = specs.BoundedArray(spec.shape, np.uint8, 0, _LARGEST_BYTE, name=spec.name)
        return _Conversion(image, _to_image)
    if kind == "b":
        return _Conversion(specs.BoundedArray(spec.shape, np.float32, 0.0, 1.0, name=spec.name), _to_float)
    if not isinstance(spec, specs.BoundedArray):
        return _Conversion(specs.Array(spec.shape, np.float32, name=spec.name), _to_float)
    low, high = (bound.astype(np.float64) for bound in specs.bounds(spec))
    sizes = (high - low + 1).ravel()
    if isinstance(spec, specs.DiscreteArray) or (not is_byte and sizes.size and sizes.max() > _TWO):
        size = float(sizes.sum())
        if size <= _LARGEST:
            vector = specs.BoundedArray((int(size),), np.float32, 0.0, 1.0, name=spec.name)
            return _Conversion(vector, _OneHot(spec, low.ravel(), sizes))
        if isinstance(spec, specs.DiscreteArray):
            # A network's `OneHotEncoder` makes the vector where it is needed.
            return _Conversion(spec, leafwise.same)
    if is_byte and (high > low).all():
        share = specs.BoundedArray(spec.shape, np.float32, 0.0, 1.0, name=spec.name)
        return _Conversion(share, functools.partial(_to_share, low, high - low))
    floats = specs.BoundedArray(
        spec.shape, np.float32, low.astype(np.float32), high.astype(np.float32), name=spec.name
    )
    return _Conversion(floats, _to_float)


class _OneHot:
    """Converts values to one-hot vectors and concatenates these."""

    def __init__(self, spec: specs.BoundedArray, low: np.ndarray, sizes: np.ndarray) -> None:
        """Args: spec: Of the values. low: Smallest values, [n]. sizes: Number of values of each, [n]."""
        self._spec = spec
        self._low, self._sizes = low.astype(np.int64), sizes.astype(np.int64)
        self._starts = np.cumsum(self._sizes) - self._sizes

    def __call__(self, value: Any) -> np.ndarray:
        places = np.ravel(value).astype(np.int64) - self._low
        if (places < 0).any() or (places >= self._sizes).any():
            specs.check_bounds(self._spec.name or "observation", np.asarray(value), self._spec)
        vector = np.zeros(self._sizes.sum(), np.float32)
        vector[self._starts + places] = 1.0
        return vector


def _to_float(value: Any) -> np.ndarray:
    return np.asarray(value, np.float32)


def _to_share(low: np.ndarray, width: np.ndarray, value: Any) -> np.ndarray:
    return np.asarray((value - low) / width, np.float32)


def _to_image(value: Any) -> np.ndarray:
    return np.asarray(value, np.uint8) * np.uint8(_LARGEST_BYTE)
