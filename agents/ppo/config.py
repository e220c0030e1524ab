"""Hyperparameters of PPO, and the presets."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from minerva_acme import constraints
from minerva_acme.agents.on_policy import config as on_policy_config
from minerva_acme.constraints import Constraint, Range


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOConfig(on_policy_config.OnPolicyConfig):
    """Hyperparameters of PPO; defaults are the usual ones for continuous control.

    Sources: [1] Schulman et al. 2017, "Proximal policy optimization algorithms"; [2] Andrychowicz et
    al. 2021, "What matters for on-policy deep actor-critic methods?"; [3] Schulman et al. 2016,
    "High-dimensional continuous control using generalized advantage estimation".
    """

    policy_layer_sizes: constraints.Sizes = (64, 64)
    value_layer_sizes: constraints.Sizes = (64, 64)
    torso: Literal["tanh", "layer_norm"] = "tanh"
    state_dependent_stddev: bool = False
    squash_actions: bool = False

    num_epochs: Annotated[constraints.Count, Range(3, 20)] = 10
    """Passes over a rollout."""
    minibatch_size: Annotated[int, Constraint(">= 2 samples", lambda value: value >= 2)] = 64
    """Samples of a gradient step; a remainder is distributed among the minibatches. With a memory, a
    minibatch is all steps of some environments, this many in total, including the burn-in."""
    clip_ratio: Annotated[constraints.Positive, Range(0.1, 0.4)] = 0.2
    """Epsilon of the clipped surrogate [1], and the value's clipping range if `clip_value` is set."""
    clip_value: bool = False
    """Whether the value's loss is clipped around the values before the update, which slows learning [2]."""
    value_coef: constraints.NonNegative = 0.5
    """Weight of the value's loss."""
    entropy_coef: Annotated[constraints.NonNegative, Range(1e-8, 0.1, log=True)] = 0.0
    """Weight of the entropy bonus."""
    target_kl: Annotated[
        float | None, Constraint(">= 0 or None", lambda value: value is None or value >= 0)
    ] = 0.02
    """Approximate KL, nats, above which no further epoch is made; 0 or None for no limit."""

    learning_rate: constraints.LearningRate = 3e-4
    adam_epsilon: constraints.Positive = 1e-5
    max_grad_norm: constraints.Positive = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.minibatch_size > self.rollout_steps:
            raise ValueError(
                f"`minibatch_size` must be <= `rollout_steps` ({self.rollout_steps}), got "
                f"{self.minibatch_size}. Lower it, or make longer rollouts."
            )
        if self.memory != "none" and self.minibatch_size % self.rollout_length:
            raise ValueError(
                f"With `memory`, `minibatch_size` must be a multiple of the {self.rollout_length} steps that "
                "each environment makes of a rollout (`rollout_steps` / `num_environments`), got "
                f"{self.minibatch_size}. A minibatch then consists of whole environments: set it to "
                f"{self.rollout_length}, or use the preset `memory`."
            )


PRESETS: Mapping[str, PPOConfig] = MappingProxyType(
    {
        "default": PPOConfig(),
        # Episodes of the dm_control suite are 1000 steps long and begin together. Rollouts of 1024 steps
        # contain whole episodes; with shorter ones, each update would see one part and forget the others.
        "control": PPOConfig(num_environments=4, rollout_steps=4096, minibatch_size=128),
        # Minibatches of four of sixteen environments, each 128 steps of memory.
        "memory": PPOConfig(memory="lstm", num_environments=16, minibatch_size=512),
        # The hyperparameters of the PPO that this library grew out of.
        "minerva": PPOConfig(num_environments=1, clip_value=True),
    }
)
"""Named settings: `default`, `control` (dm_control suite), `memory` (LSTM) and `minerva` (the original's)."""
