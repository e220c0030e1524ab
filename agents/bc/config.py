"""Hyperparameters of behaviour cloning, and the presets."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from minerva_acme import constraints
from minerva_acme.agents.off_policy import config as off_policy_config


@dataclasses.dataclass(frozen=True, kw_only=True)
class BCConfig(off_policy_config.RecurrentTransitionConfig):
    """Hyperparameters of behaviour cloning."""

    # Networks.
    torso: Literal["mlp", "relu", "simba"] = "mlp"
    """Torso of the policy: layers behind a LayerNorm, plain ReLU layers, or residual blocks."""
    policy_layer_sizes: constraints.Sizes = (256, 256)
    """Units of each layer of the policy's torso; for SimBa, of each block, all equal."""
    # Learning.
    loss: Literal["likelihood", "squared_error"] = "likelihood"
    """Loss of the policy. `likelihood`: a distribution that makes the recorded actions likely, and so also
    varies as they do; `squared_error`: one action in each state, continuous and close to the recorded one."""
    learning_rate: constraints.LearningRate = 3e-4
    """Learning rate of the policy."""

    @property
    def needs_recorded_data(self) -> bool:
        return True


PRESETS: Mapping[str, BCConfig] = MappingProxyType({"default": BCConfig()})
"""Named settings: `default`."""
