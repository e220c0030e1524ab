"""Hyperparameters of all on-policy agents."""

import dataclasses
from typing import Annotated, Literal

from minerva_acme import constraints, foreign_names
from minerva_acme.constraints import Range
from minerva_acme.distributions.limits import Stddev


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnPolicyConfig(foreign_names.Translated):
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
    memory: Literal["none", "lstm", "gru"] = "none"
    """Recurrent network between encoder and torsos, with which policy and value remember the episode."""
    memory_size: constraints.MemorySize = 64
    """Number of recurrent units of the memory."""
    critic_observations: constraints.Names = ()
    """Entries of a dict of observations that only the value sees: the policy has no input for them. Source:
    Pinto et al. 2018, "Asymmetric actor critic for image-based robot learning"."""
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
    """Environments played at once, with one batched call of the policy."""
    rollout_steps: constraints.Count = 2048
    """Environment steps between two updates, over all environments. With a memory, gradients flow back
    through all steps of each environment's rollout."""
    burn_in: constraints.Natural = 0
    """First steps of each environment's rollout that only warm up the memory, with the newest weights: no
    loss is computed there. Source: Kapturowski et al. 2019, "Recurrent experience replay in distributed
    reinforcement learning"."""
    discount: constraints.Discount
    """Gamma, multiplied with the environment's own discount."""
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
    """Whether observations are normalised by their running mean and variance."""
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
    acceleration: Literal["auto", "off", "compile"] = "auto"
    """Whether acting and updates may use faster code than plain torch; the log names what is used. Numbers
    differ by float32 rounding. `compile`: PPO's loss and its gradients are also compiled by torch.compile,
    which takes some seconds at the first minibatch."""
    max_skipped_batches: constraints.Natural = 10
    """Consecutive rollouts that may be skipped for non-finite values; one more is an error."""

    def __post_init__(self) -> None:
        constraints.check_fields(self)
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

        shared = {"`shared_torso`": self.shared_torso, f"`memory` {self.memory}": self.memory != "none"}
        constraints.check_unshared(self.critic_observations, "value", shared)
        if self.memory == "none" and self.burn_in:
            raise ValueError(
                f"`burn_in` must be 0 without `memory`, got {self.burn_in}. There is nothing to warm up: set "
                "it to 0, or set `memory` to lstm or gru."
            )
        if self.burn_in >= self.rollout_length:
            raise ValueError(
                f"`burn_in` must be < the {self.rollout_length} steps that each environment makes of a "
                f"rollout (`rollout_steps` / `num_environments`), got {self.burn_in}. No step would be left "
                "to learn from: lower it, or make longer rollouts."
            )

    @property
    def rollout_length(self) -> int:
        """The number of steps that each environment makes of a rollout, T."""
        return self.rollout_steps // self.num_environments
