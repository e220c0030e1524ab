"""Hyperparameters of D4PG, and the presets."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from minerva_acme import constraints
from minerva_acme.agents.off_policy import config as off_policy_config
from minerva_acme.constraints import Range


@dataclasses.dataclass(frozen=True, kw_only=True)
class D4PGConfig(off_policy_config.ActorCriticConfig):
    """Hyperparameters of D4PG; defaults are from Acme's D4PG [2].

    Sources: [1] Barth-Maron et al. 2018, "Distributed distributional deterministic policy gradients"; [2]
    Acme's D4PG agent (JAX), on the dm_control suite.
    """

    policy_layer_sizes: constraints.Sizes = (300, 200)
    """Units of each layer of the policy's torso [1]; for SimBa, of each block, all equal."""
    policy_learning_rate: constraints.LearningRate = 1e-4
    """Learning rate of the policy."""
    critic_learning_rate: constraints.LearningRate = 1e-4
    """Learning rate of the critic."""
    max_grad_norm: constraints.Positive = 40.0
    """Global norm to which the gradients of policy and critic are each clipped [2]."""
    max_action_gradient: constraints.Positive = 1.0
    """Norm to which dQ/da is clipped in each state [2], in units of the return per unit of the action."""
    target_policy_update_period: constraints.Count = 100
    """Learner steps between copies of the policy to its target."""
    target_critic_update_period: constraints.Count = 100
    """Learner steps between copies of the critic to its target."""
    exploration_stddev: Annotated[constraints.NonNegative, Range(0.05, 0.5)] = 0.3
    """Standard deviation of the exploration noise [1, 2], in units of half the action's range."""
    random_steps: constraints.Natural = 0
    """Environment steps with random actions before the policy acts."""

    critic_layer_sizes: constraints.Sizes = (400, 300)
    critic_head: Literal["scalar", "c51", "two_hot", "hl_gauss", "mixture"] = "c51"
    n_step: constraints.Count = 5
    samples_per_insert: constraints.Positive = 32.0


PRESETS: Mapping[str, D4PGConfig] = MappingProxyType(
    {
        "default": D4PGConfig(),
        # Networks, rates and samples of this library's MPO on the dm_control suite.
        "control": D4PGConfig(
            policy_layer_sizes=(256, 256, 256),
            critic_layer_sizes=(256, 256, 256),
            policy_learning_rate=3e-4,
            critic_learning_rate=3e-4,
            samples_per_insert=64.0,
        ),
    }
)
"""Named settings: `default` and `control` (dm_control suite)."""
