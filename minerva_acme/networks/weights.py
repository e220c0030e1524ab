"""Copying weights into a network, from another process or a file."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn


def set_weights(module: nn.Module, state: Mapping[str, np.ndarray]) -> None:
    """Copies a state dict of arrays into a module, as every actor does every few steps.

    Raises:
        ValueError: Names or shapes differ from the module's; nothing was copied then.
        TypeError: A value is no array.
    """
    for name, value in state.items():
        if not isinstance(value, np.ndarray):
            raise TypeError(
                f"The weights of this {type(module).__name__} must be numpy arrays, got a "
                f"{type(value).__name__} for `{name}`. A learner's `get_variables` returns copies: "
                "`tensor.numpy(force=True).copy()`."
            )
    tensors = module.state_dict()
    # `copy_` would repeat a smaller array, and a network with a layer less would find all its names.
    if tensors.keys() != state.keys() or any(x.shape != state[name].shape for name, x in tensors.items()):
        raise ValueError(_describe_misfit(module, tensors, state))
    for name, tensor in tensors.items():
        tensor.copy_(torch.from_numpy(state[name]), non_blocking=True)


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yields the names of arrays that are missing or have another shape, with their shapes here and there."""
    here, there = ({name: str(tuple(x.shape)) for name, x in each.items()} for each in (ours, theirs))
    for name in dict.fromkeys([*here, *there]):
        own, other = here.get(name, "missing"), there.get(name, "missing")
        if own != other:
            yield name, own, other


def _describe_misfit(module: nn.Module, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    found = [f"`{name}` is {there} there, {here} here" for name, here, there in differences(ours, theirs)]
    more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
    return (
        f"The weights must have the names and shapes of this {type(module).__name__}, but "
        f"{', '.join(found[:3])}{more}. The network's code, its config or the environment has "
        "changed since training: use the old ones, or train again."
    )
