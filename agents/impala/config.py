"""Hyperparameters of IMPALA, and the presets."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from minerva_acme import constraints
from minerva_acme.agents.on_policy import config as on_policy_config
from minerva_acme.constraints import Range


@dataclasses.dataclass(frozen=True, kw_only=True)
class IMPALAConfig(on_policy_config.OnPolicyConfig):
    """Hyperparameters of IMPALA. Without `asynchronous` it is A2C, whose actors play in rounds.

    Source: Espeholt et al. 2018, "IMPALA: Scalable distributed deep-RL with importance weighted actor-learner
    architectures".
    """

    policy_layer_sizes: constraints.Sizes = (64, 64)
    value_layer_sizes: constraints.Sizes = (64, 64)
    torso: Literal["tanh", "layer_norm"] = "tanh"
    state_dependent_stddev: bool = False
    squash_actions: bool = False

    rollout_steps: constraints.Count = 40
    """Environment steps of a learner step, over all environments. With a memory, gradients flow back through
    all steps of each environment's rollout."""
    asynchronous: bool = True
    gae_lambda: Annotated[constraints.Share, Range(0.8, 1.0)] = 1.0
    """Lambda of V-trace: 1 is the paper's, less weighs later steps less."""
    normalize_advantages: bool = False

    value_coef: constraints.NonNegative = 0.5
    """Weight of the value's loss."""
    entropy_coef: Annotated[constraints.NonNegative, Range(1e-5, 0.1, log=True)] = 0.01
    """Weight of the entropy bonus."""

    learning_rate: constraints.LearningRate = 1e-3
    adam_epsilon: constraints.Positive = 1e-5
    max_grad_norm: constraints.Positive = 0.5


PRESETS: Mapping[str, IMPALAConfig] = MappingProxyType(
    {
        "default": IMPALAConfig(),
        # Rollouts of 20 steps of memory.
        "memory": IMPALAConfig(memory="lstm", rollout_steps=160),
    }
)
"""Named settings: `default` and `memory` (LSTM)."""
