"""Hyperparameters of V-MPO, and the presets."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from minerva_acme import constraints
from minerva_acme.agents.on_policy import config as on_policy_config
from minerva_acme.constraints import Constraint, Range


@dataclasses.dataclass(frozen=True, kw_only=True)
class VMPOConfig(on_policy_config.OnPolicyConfig):
    """Hyperparameters of V-MPO.

    Source: Song et al. 2019, "V-MPO: on-policy maximum a posteriori policy optimization for discrete
    and continuous control".
    """

    policy_layer_sizes: constraints.Sizes = (512, 256)
    value_layer_sizes: constraints.Sizes = (512, 256)
    torso: Literal["tanh", "layer_norm"] = "layer_norm"
    state_dependent_stddev: bool = True
    squash_actions: bool = True

    discount: constraints.Discount = 0.98

    m_steps: constraints.Count = 16
    """Passes over a rollout, each a step of the multipliers and a step of policy and value."""
    top_k_fraction: Annotated[float, Constraint("in (0, 1]", lambda value: 0 < value <= 1)] = 0.6
    """Share of the samples, the ones with the largest advantages, that the policy learns from."""
    epsilon_temperature: Annotated[constraints.Positive, Range(0.01, 1.0, log=True)] = 0.15
    """Bound on KL(nonparametric policy || behaviour policy), nats."""
    epsilon_mean: Annotated[constraints.Positive, Range(1e-3, 0.5, log=True)] = 0.05
    """Bound on the policy's KL by its mean, nats; for a discrete policy, on its whole KL."""
    epsilon_stddev: constraints.Positive = 0.05
    """Bound on the policy's KL by its standard deviation, nats."""
    init_temperature: constraints.Positive = 1.0
    """Initial temperature."""
    init_alpha: constraints.Positive = 1.0
    """Initial multipliers of the KLs."""
    temperature_learning_rate: constraints.Positive = 1e-2
    """Learning rate of the temperature."""
    alpha_learning_rate: constraints.Positive = 1e-2
    """Learning rate of the KLs' multipliers."""

    learning_rate: constraints.LearningRate = 5e-4
    adam_epsilon: constraints.Positive = 1e-8
    max_grad_norm: constraints.Positive = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        num_samples = self.rollout_steps - self.burn_in * self.num_environments
        if int(self.top_k_fraction * num_samples) < 1:
            raise ValueError(
                f"`top_k_fraction` must leave at least one sample of `rollout_steps` ({num_samples}), "
                f"got {self.top_k_fraction}. Raise it, or make longer rollouts."
            )


PRESETS: Mapping[str, VMPOConfig] = MappingProxyType(
    {
        "default": VMPOConfig(),
        # The hyperparameters of the V-MPO that this library grew out of.
        "minerva": VMPOConfig(
            num_environments=1,
            rollout_steps=4096,
            learning_rate=1e-4,
            anneal_learning_rate=False,
            temperature_learning_rate=1e-4,
            alpha_learning_rate=1e-4,
        ),
    }
)
"""Named settings: `default` and `minerva` (the original's)."""
