"""Hyperparameters of WPO, and the presets."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from minerva_acme import constraints
from minerva_acme.agents.off_policy import config as off_policy_config
from minerva_acme.constraints import Range
from minerva_acme.distributions.limits import Stddev


@dataclasses.dataclass(frozen=True, kw_only=True)
class WPOConfig(off_policy_config.ActorCriticConfig):
    """Hyperparameters of WPO; defaults, except the weights of the KLs, are from Acme's example script [2].

    Sources: [1] Pfau et al. 2025, "Wasserstein policy optimization"; [2] Acme's WPO agent (JAX).
    """

    policy_layer_sizes: constraints.Sizes = (256, 256, 256)
    critic_layer_sizes: constraints.Sizes = (256, 256, 256)
    init_stddev: Stddev = 0.5
    """Standard deviation of the untrained policy, in units of the action, in [0.00092, 7.38]: log-std
    is clamped to [-7, 2], see `networks.GaussianPolicy`."""
    learning_rate: constraints.LearningRate = 3e-4
    """Learning rate of policy and critic."""
    max_grad_norm: constraints.Positive = 40.0
    """Global norm to which the gradients of policy and critic are each clipped."""
    target_update_period: constraints.Count = 100
    """Learner steps between copies of policy and critic to their targets."""
    num_samples: constraints.Count = 20
    """Actions sampled in each state, to value it and to improve the policy."""
    cube_root: bool = False
    """Whether each entry of the critic's gradient by the action is replaced by its cube root, so that the
    balance with the KLs depends less on the size of the rewards. [1] and [2] have it as an option."""
    kl_weight_mean: Annotated[constraints.NonNegative, Range(0.01, 100.0, log=True)] = 10.0
    """Weight of the KL of the policy's mean from the target policy, per nat, beside the gradient of Q by the
    action. With the 0.035 of [2], 0.69 for the sum over 20 samples, the mean ran into its bound on Pendulum
    before the critic had learned anything, and stayed there."""
    kl_weight_stddev: Annotated[constraints.NonNegative, Range(1.0, 1e4, log=True)] = 100.0
    """The same for its standard deviation: 500 in [2], 10,000 for the sum."""

    n_step: constraints.Count = 5
    samples_per_insert: constraints.Positive = 64.0


PRESETS: Mapping[str, WPOConfig] = MappingProxyType(
    {"default": WPOConfig(), "acme": WPOConfig(kl_weight_mean=0.035, kl_weight_stddev=500.0)}
)
"""Named settings: `default`, and `acme` with the weights of the KLs of Acme's example script."""
