"""What can be set about every on-policy agent."""

import dataclasses
from typing import Literal

from minerva_acme.distributions.limits import MAX_STDDEV, MIN_STDDEV, STDDEV_RANGE


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnPolicyConfig:
    """Hyperparameters that PPO and V-MPO share; each gives them its own defaults."""

    # Networks.
    policy_layer_sizes: tuple[int, ...]
    """Units of each layer of the policy's torso."""
    value_layer_sizes: tuple[int, ...]
    """Units of each layer of the value's torso; the policy's where the torso is shared."""
    torso: Literal["tanh", "layer_norm"]
    """`tanh`: orthogonal tanh layers; `layer_norm`: Linear, LayerNorm, tanh, then ELU layers."""
    shared_torso: bool
    """Whether policy and value are heads of one torso."""
    state_dependent_stddev: bool
    """Whether the Gaussian's log-std is a head of the torso or a parameter by itself."""
    init_stddev: float
    """Standard deviation of the untrained Gaussian, in units of the raw action, in [0.00092, 7.38]:
    log-std is clamped to [-7, 2], see `networks.GaussianPolicy`."""
    squash_actions: bool
    """Whether continuous actions are squashed to their bounds by tanh; else they are clipped. The entropy of
    a squashed policy is that of the raw Gaussian."""

    # Rollouts.
    num_environments: int
    """Environments that are played at once, with one batched call of the policy."""
    rollout_steps: int
    """Environment steps between two updates, of all environments together."""
    discount: float
    """Gamma, multiplied with the environment's own discount."""
    advantage_estimator: Literal["gae", "dae", "returns"]
    """`gae`: generalised advantages; `dae`: one-step; `returns`: discounted returns less the value."""
    gae_lambda: float
    """Lambda of the generalised advantages: 0 is one-step, 1 the whole return."""
    normalize_advantages: bool
    """Whether advantages are brought to mean 0 and standard deviation 1 before the policy's loss."""
    normalize_observations: bool
    """Whether observations are normalised by their running mean and variance."""
    scale_rewards: bool
    """Whether the learner divides rewards by the running standard deviation of the discounted return."""

    # Optimisation.
    learning_rate: float
    """Learning rate of policy and value."""
    anneal_learning_rate: bool
    """Whether the learning rate falls linearly to 0 at the end of the run."""
    adam_epsilon: float
    """Adam's epsilon."""
    max_grad_norm: float
    """Global norm to which the gradients of policy and value together are clipped."""
    max_skipped_batches: int
    """Rollouts in a row that may be skipped for non-finite values; one more is an error."""

    def __post_init__(self) -> None:
        for name in ("policy_layer_sizes", "value_layer_sizes"):
            sizes = getattr(self, name)
            check(name, sizes, len(sizes) > 0 and min(sizes) >= 1, "one or more sizes >= 1")
        for name in ("num_environments", "rollout_steps"):
            check(name, getattr(self, name), getattr(self, name) >= 1, ">= 1")
        check("max_skipped_batches", self.max_skipped_batches, self.max_skipped_batches >= 0, ">= 0")
        for name in ("learning_rate", "adam_epsilon", "max_grad_norm"):
            check(name, getattr(self, name), getattr(self, name) > 0, "> 0")
        check("init_stddev", self.init_stddev, MIN_STDDEV <= self.init_stddev <= MAX_STDDEV, STDDEV_RANGE)
        for name in ("discount", "gae_lambda"):
            check(name, getattr(self, name), 0 <= getattr(self, name) <= 1, "in [0, 1]")
        for name, choices in (
            ("torso", ("tanh", "layer_norm")),
            ("advantage_estimator", ("gae", "dae", "returns")),
        ):
            check(name, getattr(self, name), getattr(self, name) in choices, f"one of {choices}")
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

    @property
    def rollout_length(self) -> int:
        """Steps that each environment makes of a rollout, T."""
        return self.rollout_steps // self.num_environments


def check(name: str, value: object, holds: bool, expected: str) -> None:
    """Raises ValueError, saying what `name` must be, unless it holds."""
    if not holds:
        raise ValueError(f"`{name}` must be {expected}, got {value!r}.")
