"""What can be set about every agent that learns from replay."""

import dataclasses

from minerva_acme import constraints


@dataclasses.dataclass(frozen=True, kw_only=True)
class OffPolicyConfig:
    """How much is kept, drawn and learned; agents add their own and change the defaults."""

    discount: constraints.Share = 0.99
    """Gamma, multiplied with the environment's own discount."""
    batch_size: constraints.Count = 256
    """Items per learner step."""
    max_replay_size: constraints.Count = 1_000_000
    """Items kept; the oldest are dropped."""
    min_replay_size: constraints.Count = 1_000
    """Items written before learning starts."""
    samples_per_insert: constraints.Positive = 256.0
    """Items sampled per item written: batch_size / samples_per_insert inserts a step."""
    num_environments: constraints.Count = 1
    """Environments played at once, each with an adder of its own: one call of the policy acts in all."""
    variable_update_period: constraints.Count = 1
    """Environment steps between an actor's looks for newer weights."""
    max_skipped_batches: constraints.Natural = 10
    """Batches in a row that may be skipped for non-finite values; one more is an error."""

    def __post_init__(self) -> None:
        constraints.check_fields(self)
        if self.min_replay_size > self.max_replay_size:
            raise ValueError(
                f"Learning would never start: `min_replay_size` {self.min_replay_size} is above "
                f"`max_replay_size` {self.max_replay_size}. Lower the first or raise the second."
            )

    @property
    def inserts_per_learner_step(self) -> float:
        """Items written per learner step."""
        return self.batch_size / self.samples_per_insert


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransitionConfig(OffPolicyConfig):
    """Items are transitions over n steps."""

    n_step: constraints.Count = 1
    """Steps that a transition is folded over, fewer at the end of an episode."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceConfig(OffPolicyConfig):
    """Items are sequences."""

    sequence_length: constraints.Count
    """Transitions in a replayed sequence."""
    sequence_period: constraints.Count = 1
    """Steps between the starts of two sequences; 1: each transition starts one."""
    frame_stack: constraints.Count = 1
    """Frames of an observation where the environment is in a `FrameStackWrapper`: replay holds each of them
    once. 1: observations are stored as they are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sequence_period > self.sequence_length:
            raise ValueError(
                f"`sequence_period` must be <= `sequence_length` {self.sequence_length}, got "
                f"{self.sequence_period}: transitions between two sequences would never be learned from."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrioritizedConfig(OffPolicyConfig):
    """Items are drawn by priority; to be inherited beside `TransitionConfig` or `SequenceConfig`.

    Source: Schaul et al. 2016, "Prioritized experience replay", the proportional variant.
    """

    priority_exponent: constraints.NonNegative = 0.6
    """Alpha: an item is drawn with a probability proportional to priority^alpha; 0: all are drawn alike."""
    importance_exponent: constraints.Share = 0.4
    """Beta of the importance weights at the beginning. It rises linearly and is 1 at the end of the run;
    where nobody knows how long that is, it stays."""
