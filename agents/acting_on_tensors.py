"""Acting in batched environments: a module's output on tensors of any device, which is never read."""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from minerva_acme import networks
from minerva_acme.acceleration.acting import Choice
from minerva_acme.machine import generators


class ActingOnTensors:
    """Computes a module's output and draws samples from it, as `acceleration.Acting` does, but on tensors.

    Observations, outputs and samples are on the module's device, and so is the noise, which torch draws.
    """

    remembers = False

    def __init__(self, module: nn.Module, generator: torch.Generator, device: torch.device) -> None:
        """Takes the module.

        Args:
            module: The module, which gives an output for observations [B, ...]; copied to the device.
            generator: The generator for the noise, on the device.
            device: The device of all tensors.

        Raises:
            ValueError: The module has a memory.
        """
        if networks.memory_of(module) is not None:
            raise ValueError(
                f"The policy of batched environments must have no memory, got {type(module).__name__} with "
                "one. Set `memory` to none, or play environments that are not batched."
            )
        self.generator = generator
        self.module = copy.deepcopy(module).to(device).requires_grad_(False).eval()

    @torch.no_grad()
    def __call__(self, observations: Any) -> Any:
        """Computes the module's output for observations, leaves [B, ...]."""
        return networks.policy_of(self.module)(observations)

    @torch.no_grad()
    def sample(self, observations: Any) -> Choice:
        """Draws from the module's distribution at B observations."""
        policy = self(observations)
        raw = policy.sample(self.generator)
        return Choice(raw, policy.log_prob(raw), policy)

    def initial_state(self, num_environments: int) -> tuple[()]:
        """Returns (), since there is no memory."""
        return ()

    def set_variables(self, state: Mapping[str, np.ndarray]) -> None:
        """Sets weights and statistics from `state`, the module's state dict as arrays.

        Raises:
            ValueError: Its names or shapes are not the module's.
        """
        networks.set_weights(self.module, state)

    @property
    def noise(self) -> Any:
        """The state of the noise."""
        return {"generator": self.generator.get_state()}

    @noise.setter
    def noise(self, state: Any) -> None:
        generators.restore(self.generator, state["generator"])

    def restore(self, noise: Any) -> None:
        """Restores the state of the noise."""
        self.noise = noise
