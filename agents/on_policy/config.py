"""What can be set about every on-policy agent."""

import dataclasses
from typing import Annotated, Literal

from minerva_acme import constraints
from minerva_acme.constraints import Constraint
from minerva_acme.distributions.limits import Stddev


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnPolicyConfig:
    """Hyperparameters that PPO and V-MPO share; each gives them its own defaults."""

    # Networks.
    policy_layer_sizes: constraints.Sizes
    """Units of each layer of the policy's torso."""
    value_layer_sizes: constraints.Sizes
    """Units of each layer of the value's torso; the policy's where the torso is shared."""
    torso: Literal["tanh", "layer_norm"]
    """`tanh`: orthogonal tanh layers; `layer_norm`: Linear, LayerNorm, tanh, then ELU layers."""
    shared_torso: bool = False
    """Whether policy and value are heads of one torso."""
    memory: Literal["none", "lstm", "gru"] = "none"
    """Recurrent units between encoder and torsos, by which policy and value remember the episode; or none."""
    memory_size: Annotated[
        int,
        Constraint(">= 1", lambda value: value >= 1),
        Constraint(constraints.FITTING, lambda value: constraints.fit_into_memory((value, 4 * value))),
    ] = 64
    """Recurrent units of the memory."""
    encoder_loss: Literal["both", "policy", "value"] = "both"
    """Which losses train the memory and the encoder of images and nests: those of policy and value, or one
    alone. Source of `both`: Schulman et al. 2017, eq. 9, of parameters that the two share. A vector has no
    encoder."""
    state_dependent_stddev: bool
    """Whether the Gaussian's log-std is a head of the torso or a parameter by itself."""
    init_stddev: Stddev = 1.0
    """Standard deviation of the untrained Gaussian, in units of the raw action, in [0.00092, 7.38]:
    log-std is clamped to [-7, 2], see `networks.GaussianPolicy`."""
    squash_actions: bool
    """Whether continuous actions are squashed to their bounds by tanh; else they are clipped. The entropy of
    a squashed policy is that of the raw Gaussian."""

    # Rollouts.
    num_environments: constraints.Count = 8
    """Environments that are played at once, with one batched call of the policy."""
    rollout_steps: constraints.Count = 2048
    """Environment steps between two updates, of all environments together. With a memory, gradients go back
    through those of one environment."""
    burn_in: constraints.Natural = 0
    """First steps of each environment's rollout that only warm the memory up, with the newest weights: no
    loss is computed there. Source: Kapturowski et al. 2019, "Recurrent experience replay in distributed
    reinforcement learning"."""
    discount: constraints.Share
    """Gamma, multiplied with the environment's own discount."""
    advantage_estimator: Literal["gae", "dae", "returns"] = "gae"
    """`gae`: generalised advantages; `dae`: one-step; `returns`: discounted returns less the value."""
    gae_lambda: constraints.Share = 0.95
    """Lambda of the generalised advantages: 0 is one-step, 1 the whole return."""
    normalize_advantages: bool = True
    """Whether advantages are brought to mean 0 and standard deviation 1 before the policy's loss."""
    normalize_observations: bool = True
    """Whether observations are normalised by their running mean and variance."""
    scale_rewards: bool = True
    """Whether the learner divides rewards by the running standard deviation of the discounted return."""

    # Optimisation.
    learning_rate: constraints.Positive
    """Learning rate of policy and value."""
    anneal_learning_rate: bool = True
    """Whether the learning rate falls linearly to 0 at the end of the run."""
    adam_epsilon: constraints.Positive
    """Adam's epsilon."""
    max_grad_norm: constraints.Positive
    """Global norm to which the gradients of policy and value together are clipped."""
    acceleration: Literal["auto", "off", "compile"] = "auto"
    """Whether acting and updates may be computed in faster ways than by plain torch; the log says which are
    taken. Numbers differ by float32 rounding. `compile`: PPO's loss and its gradients are compiled, by
    torch.compile, which takes some seconds at the first minibatch."""
    max_skipped_batches: constraints.Natural = 10
    """Rollouts in a row that may be skipped for non-finite values; one more is an error."""

    def __post_init__(self) -> None:
        constraints.check_fields(self)
        if self.rollout_steps % self.num_environments:
            raise ValueError(
                f"`rollout_steps` must be a multiple of `num_environments` ({self.num_environments}), got "
                f"{self.rollout_steps}. Every environment makes as many steps of a rollout."
            )
        if self.shared_torso and self.policy_layer_sizes != self.value_layer_sizes:
            raise ValueError(
                f"`value_layer_sizes` must be those of the policy, {self.policy_layer_sizes}, where "
                f"`shared_torso` is set, got {self.value_layer_sizes}."
            )

        if self.memory == "none" and self.burn_in:
            raise ValueError(
                f"`burn_in` must be 0 without `memory`, got {self.burn_in}. There is nothing to warm up: set "
                "it to 0, or `memory` to lstm or gru."
            )
        if self.burn_in >= self.rollout_length:
            raise ValueError(
                f"`burn_in` must be < the {self.rollout_length} steps that each environment makes of a "
                f"rollout (`rollout_steps` / `num_environments`), got {self.burn_in}. No step would be left "
                "to learn from: lower it, or make longer rollouts."
            )

    @property
    def rollout_length(self) -> int:
        """Steps that each environment makes of a rollout, T."""
        return self.rollout_steps // self.num_environments
