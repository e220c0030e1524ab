"""The weights that a network of one process takes from that of another, or from a file."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn


def set_weights(module: nn.Module, state: Mapping[str, np.ndarray]) -> None:
    """Copies a state dict of arrays into a module, as every actor does every few steps.

    Raises:
        ValueError: Names or shapes differ from the module's; nothing was copied then.
    """
    tensors = module.state_dict()
    # `copy_` would repeat a smaller array, and a network with a layer less would find all its names.
    if tensors.keys() != state.keys() or any(x.shape != state[name].shape for name, x in tensors.items()):
        raise ValueError(_describe_misfit(module, tensors, state))
    for name, tensor in tensors.items():
        tensor.copy_(torch.from_numpy(state[name]), non_blocking=True)


def _describe_misfit(module: nn.Module, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    here, there = ({name: tuple(x.shape) for name, x in each.items()} for each in (ours, theirs))
    differences = [
        f"`{name}` is {there.get(name, 'missing')} there, {here.get(name, 'missing')} here"
        for name in dict.fromkeys([*here, *there])
        if here.get(name) != there.get(name)
    ]
    more = f" (and {len(differences) - 3} more)" if len(differences) > 3 else ""
    return (
        f"The weights must have the names and shapes of this {type(module).__name__}, but "
        f"{', '.join(differences[:3])}{more}. The network's code, its config or the environment differs from "
        "that of training: use those of training, or train again."
    )
