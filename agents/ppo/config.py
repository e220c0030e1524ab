"""What can be set about PPO, and the presets."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from minerva_acme.agents.on_policy import config as on_policy_config


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOConfig(on_policy_config.OnPolicyConfig):
    """Hyperparameters of PPO; defaults are the usual ones of continuous control.

    Sources: [1] Schulman et al. 2017, "Proximal policy optimization algorithms"; [2] Andrychowicz et
    al. 2021, "What matters for on-policy deep actor-critic methods?"; [3] Schulman et al. 2016,
    "High-dimensional continuous control using generalized advantage estimation".
    """

    policy_layer_sizes: tuple[int, ...] = (64, 64)
    value_layer_sizes: tuple[int, ...] = (64, 64)
    torso: Literal["tanh", "layer_norm"] = "tanh"
    shared_torso: bool = False
    state_dependent_stddev: bool = False
    init_stddev: float = 1.0
    squash_actions: bool = False

    num_environments: int = 8
    rollout_steps: int = 2048
    discount: float = 0.99
    advantage_estimator: Literal["gae", "dae", "returns"] = "gae"
    gae_lambda: float = 0.95
    normalize_advantages: bool = True
    normalize_observations: bool = True
    scale_rewards: bool = True

    num_epochs: int = 10
    """Passes over a rollout."""
    minibatch_size: int = 64
    """Samples of a gradient step; what is left over is shared out among the minibatches."""
    clip_ratio: float = 0.2
    """Epsilon of the clipped surrogate [1]; the value's clipping range too, where that is clipped."""
    clip_value: bool = False
    """Whether the value's loss is clipped around the values before the update, which slows it down [2]."""
    value_coef: float = 0.5
    """Weight of the value's loss."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus."""
    target_kl: float | None = 0.02
    """An epoch that ends above this approximate KL, nats, is the last; 0 or None: all are made."""

    learning_rate: float = 3e-4
    anneal_learning_rate: bool = True
    adam_epsilon: float = 1e-5
    max_grad_norm: float = 0.5
    max_skipped_batches: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check = on_policy_config.check
        check("num_epochs", self.num_epochs, self.num_epochs >= 1, ">= 1")
        check("minibatch_size", self.minibatch_size, self.minibatch_size >= 2, ">= 2 samples")
        check("clip_ratio", self.clip_ratio, self.clip_ratio > 0, "> 0")
        for name in ("value_coef", "entropy_coef"):
            check(name, getattr(self, name), getattr(self, name) >= 0, ">= 0")
        check("target_kl", self.target_kl, self.target_kl is None or self.target_kl >= 0, ">= 0 or None")
        if self.minibatch_size > self.rollout_steps:
            raise ValueError(
                f"`minibatch_size` must be <= `rollout_steps` ({self.rollout_steps}), got "
                f"{self.minibatch_size}. Lower it, or make longer rollouts."
            )


PRESETS: Mapping[str, PPOConfig] = MappingProxyType(
    {
        "default": PPOConfig(),
        # Episodes of the dm_control suite are 1000 steps long and begin together. Rollouts of 1024 steps show
        # all of an episode; of shorter ones each update would see one part of it and forget the others.
        "control": PPOConfig(num_environments=4, rollout_steps=4096, minibatch_size=128),
        # The hyperparameters of the PPO that this library grew out of.
        "minerva": PPOConfig(num_environments=1, clip_value=True),
    }
)
"""Named settings: `default`, `control` (dm_control suite) and `minerva` (the original's)."""
