"""Hyperparameters that agents over replay and on rollouts have in common: one class for each feature.

A config is flat, as its flags and `run.json` are. It inherits the classes of what its agent has, so that a
setting is written once, with its range, its meaning and what it does not go with.
"""

import dataclasses
from collections.abc import Iterator
from typing import Literal

from minerva_acme import constraints
from minerva_acme.names import foreign_names


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentConfig(foreign_names.Translated):
    """Hyperparameters of every agent."""

    # Networks.
    normalize_observations: bool = False
    """Whether the networks see observations normalised by their running mean and variance, which the learner
    computes from what it learns from, of sequences from their first states. Source: Lee et al. 2025, "SimBa:
    simplicity bias for scaling up parameters in deep reinforcement learning"."""
    # Optimisation.
    weight_decay: constraints.NonNegative = 0.0
    """Weight decay of the networks, without biases and norms: above 0, Adam is AdamW. Source: Loshchilov and
    Hutter 2019, "Decoupled weight decay regularization"."""
    # Acting and learning.
    discount: constraints.Discount = 0.99
    """Gamma, multiplied with the environment's own discount."""
    policy_average_rate: constraints.Share = 0.0
    """Share by which each learner step moves an average of the policy's weights towards the newest ones.
    Evaluations and saved policies then act by this average, which is more stable; actors explore by the
    newest weights. 0: there is no average. Source: Polyak and Juditsky 1992, "Acceleration of stochastic
    approximation by averaging"."""
    num_environments: constraints.Count = 1
    """Environments played at once, each with its own adder: one call of the policy acts in all of them."""
    max_skipped_batches: constraints.Natural = 10
    """Consecutive batches that may be skipped for non-finite values; one more is an error."""
    acceleration: Literal["auto", "off", "compile"] = "auto"
    """Whether learner and actors may use faster code than plain torch; the log names what is used. Numbers
    differ by float32 rounding. `compile`: losses and their gradients are also compiled by torch.compile,
    which takes some seconds at the first batch."""

    def __post_init__(self) -> None:
        constraints.check_fields(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryConfig(AgentConfig):
    """Hyperparameters of a memory of the episode.

    Source of the burn-in and of stored states: Kapturowski et al. 2019, "Recurrent experience replay in
    distributed reinforcement learning" (R2D2).
    """

    # Networks.
    memory: Literal["none", "lstm", "gru"] = "none"
    """Recurrent network behind the encoder, with which the agent remembers the episode."""
    memory_size: constraints.MemorySize = 64
    """Number of recurrent units of the memory."""
    # Acting and learning.
    burn_in: constraints.Natural = 0
    """Steps on which the newest weights warm up the memory, and no loss is computed: those before a replayed
    sequence, fewer where an episode begins, or the first ones of each environment's rollout."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.has_memory and self.burn_in:
            raise ValueError(
                f"`burn_in` must be 0 without `memory`, got {self.burn_in}. There is nothing to warm up: set "
                "it to 0, or set `memory` to lstm or gru."
            )

    @property
    def has_memory(self) -> bool:
        """Whether the agent remembers the episode."""
        return self.memory != "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CriticObservationsConfig(AgentConfig):
    """Observations that only the critic sees."""

    # Networks.
    critic_observations: constraints.Names = ()
    """Entries of a dict of observations that only the critic, or the value, sees: the policy has no input for
    them. Source: Pinto et al. 2018, "Asymmetric actor critic for image-based robot learning"."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.critic_observations and (shared := next(self.shared_parts(), None)):
            raise ValueError(
                f"`critic_observations` must be empty with {shared}, which the policy shares with what sees "
                f"them, got {', '.join(self.critic_observations)}."
            )

    def shared_parts(self) -> Iterator[str]:
        """Yields the settings by which policy and critic share a part of their networks."""
        if isinstance(self, MemoryConfig) and self.has_memory:
            yield f"`memory` {self.memory}"
