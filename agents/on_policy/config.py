"""Hyperparameters of all on-policy agents."""

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Literal

from minerva_acme import constraints
from minerva_acme.agents import settings
from minerva_acme.constraints import Range
from minerva_acme.distributions.limits import Stddev


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnPolicyConfig(settings.MemoryConfig, settings.CriticObservationsConfig):
    """Hyperparameters that PPO, V-MPO and IMPALA share; each gives them its own defaults."""

    # Networks.
    policy_layer_sizes: constraints.Sizes
    """Units of each layer of the policy's torso."""
    value_layer_sizes: constraints.Sizes
    """Units of each layer of the value's torso; must equal the policy's if the torso is shared."""
    torso: Literal["tanh", "layer_norm"]
    """`tanh`: orthogonal tanh layers; `layer_norm`: Linear, LayerNorm, tanh, then ELU layers."""
    shared_torso: bool = False
    """Whether policy and value are heads of one torso."""
    encoder_loss: Literal["both", "policy", "value"] = "both"
    """Losses that train the memory and the encoder of images and nests: the policy's and the value's, or only
    one of them. Source of `both`: Schulman et al. 2017, eq. 9, for parameters that the two share. A vector
    has no encoder."""
    state_dependent_stddev: bool
    """Whether the Gaussian's log-std is a head of the torso rather than a separate parameter."""
    init_stddev: Stddev = 1.0
    """Standard deviation of the untrained Gaussian, in units of the raw action, in [0.00092, 7.38]:
    log-std is clamped to [-7, 2], see `networks.GaussianPolicy`."""
    squash_actions: bool
    """Whether continuous actions are squashed to their bounds by tanh; otherwise they are clipped. The
    entropy of a squashed policy is its raw Gaussian's."""

    # Rollouts.
    num_environments: constraints.Count = 8
    rollout_steps: constraints.Count = 2048
    """Environment steps between two updates, over all environments. With a memory, gradients flow back
    through all steps of each environment's rollout."""
    advantage_estimator: Literal["gae", "dae", "returns"] = "gae"
    """`gae`: generalised advantages; `dae`: one-step; `returns`: discounted returns less the value."""
    gae_lambda: Annotated[constraints.Share, Range(0.8, 0.99)] = 0.95
    """Lambda of the generalised advantages: 0 is one-step, 1 the whole return."""
    asynchronous: bool = False
    """If True, several actors play without waiting for the learner, which corrects for their older weights by
    V-trace, with the lambda of the advantages: 0 for `dae`, 1 for `returns`. Otherwise they play in rounds.
    In one process no weights are older. Source: Espeholt et al. 2018, "IMPALA: Scalable distributed deep-RL
    with importance weighted actor-learner architectures"."""
    normalize_advantages: bool = True
    """Whether advantages are normalised to mean 0 and standard deviation 1 before the policy's loss."""
    normalize_observations: bool = True
    scale_rewards: bool = True
    """Whether the learner divides rewards by the running standard deviation of the discounted return."""

    # Optimisation.
    learning_rate: constraints.LearningRate
    """Learning rate of policy and value."""
    anneal_learning_rate: bool = True
    """Whether the learning rate falls linearly to 0 at the end of the run."""
    adam_epsilon: constraints.Positive
    """Adam's epsilon."""
    max_grad_norm: constraints.Positive
    """Limit to which the global norm of the gradients of policy and value together is clipped."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rollout_steps % self.num_environments:
            raise ValueError(
                f"`rollout_steps` must be a multiple of `num_environments` ({self.num_environments}), got "
                f"{self.rollout_steps}. All environments make the same number of steps of a rollout."
            )
        if self.shared_torso and self.policy_layer_sizes != self.value_layer_sizes:
            raise ValueError(
                f"`value_layer_sizes` must equal `policy_layer_sizes`, {self.policy_layer_sizes}, if "
                f"`shared_torso` is set, got {self.value_layer_sizes}."
            )
        if self.burn_in >= self.rollout_length:
            raise ValueError(
                f"`burn_in` must be < the {self.rollout_length} steps that each environment makes of a "
                f"rollout (`rollout_steps` / `num_environments`), got {self.burn_in}. No step would be left "
                "to learn from: lower it, or make longer rollouts."
            )

    def shared_parts(self) -> Iterator[str]:
        if self.shared_torso:
            yield "`shared_torso`"
        yield from super().shared_parts()

    @property
    def rollout_length(self) -> int:
        """The number of steps that each environment makes of a rollout, T."""
        return self.rollout_steps // self.num_environments
