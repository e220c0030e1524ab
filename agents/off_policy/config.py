"""Hyperparameters of all agents that learn from replay."""

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Literal

from minerva_acme import constraints
from minerva_acme.agents import settings
from minerva_acme.constraints import Constraint


@dataclasses.dataclass(frozen=True, kw_only=True)
class OffPolicyConfig(settings.AgentConfig):
    """Hyperparameters of replay, sampling and learning; agents add their own and change the defaults."""

    # Optimisation.
    final_learning_rate: constraints.Share = 1.0
    """Final learning rates, as a share of the initial ones: they fall linearly until the end of the run.
    1 keeps them constant, and so does a run of unknown length."""
    max_grad_norm: constraints.Positive | None = None
    """Global norm to which the gradient of each loss is clipped; None: it is not."""
    # Replay and acting.
    batch_size: constraints.Count = 256
    """Items per learner step."""
    max_replay_size: constraints.Count = 1_000_000
    """Largest number of items kept; the oldest are dropped."""
    min_replay_size: constraints.Count = 1_000
    """Items written before learning starts."""
    samples_per_insert: constraints.Positive = 256.0
    """Items sampled per item written: a learner step follows every batch_size / samples_per_insert items."""
    replay_fading: Annotated[float, Constraint("in (0, 1]", lambda value: 0 < value <= 1)] = 1.0
    """Factor by which an item's weight in sampling falls with each environment step after it was written,
    0.9999 in DR.Q; 1: age has no effect. Below 1 it needs replay in memory. Importance weights correct for it
    as for priorities. Source: Lyu et al. 2026, "Debiased model-based representations for sample-efficient
    continuous control"."""
    replay_fading_floor: Annotated[float, Constraint("in [1e-6, 1)", lambda value: 1e-6 <= value < 1)] = 0.1
    """Weight at which an item stops fading: after 23,025 steps with the 0.9999 and 0.1 of DR.Q."""
    variable_update_period: constraints.Count = 1
    """Steps of an actor, each in all of its environments, after which it checks for newer weights."""
    image_encoder: Literal["nature", "small"] = "nature"
    """Convolutional network for images of at least 36 pixels on each side: DQN's for Atari, or a small one
    that takes half the time on a CPU. Smaller images use MinAtar's network."""
    random_shift: constraints.Natural = 0
    """Largest number of pixels by which the learner shifts images at random, vertically and horizontally:
    see `learners.RandomShift`. 4 is usual for 84 x 84; 0 disables it."""

    @property
    def needs_recorded_data(self) -> bool:
        """True if what the policy itself plays is no use to learn from."""
        return False

    def __post_init__(self) -> None:
        super().__post_init__()
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
    """Hyperparameters of agents whose items are n-step transitions."""

    # Replay and acting.
    n_step: constraints.Count = 1
    """Environment steps that a transition spans, fewer at the end of an episode."""
    frame_stack: constraints.Count = 1
    """Frames per observation if the environment is in a `FrameStackWrapper`: replay then stores each frame
    once. 1: observations are stored as they are."""


def check_period(sequence_length: int, sequence_period: int) -> None:
    """Raises a ValueError if transitions lie between two sequences."""
    if sequence_period > sequence_length:
        raise ValueError(
            f"`sequence_period` must be <= `sequence_length` {sequence_length}, got {sequence_period}: "
            "transitions between two sequences would never be learned from."
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceConfig(OffPolicyConfig):
    """Hyperparameters of agents whose items are sequences."""

    # Replay and acting.
    sequence_length: constraints.Count
    """Transitions in a replayed sequence."""
    sequence_period: constraints.Count = 1
    """Steps between the starts of two sequences; 1: each transition starts one."""
    frame_stack: constraints.Count = 1
    """Frames per observation if the environment is in a `FrameStackWrapper`: replay then stores each frame
    once. 1: observations are stored as they are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_period(self.sequence_length, self.sequence_period)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryConfig(settings.MemoryConfig, OffPolicyConfig):
    """Hyperparameters of a memory of the episode; inherit it together with `SequenceConfig`."""

    # Replay and acting.
    stored_state: bool = True
    """Whether the memory starts from the state that the actor had before a sequence, stored with it, instead
    of the state at the beginning of an episode, as it always does for agents that need recorded data."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentTransitionConfig(TransitionConfig, MemoryConfig):
    """Hyperparameters of agents whose items are transitions or, with a memory, sequences."""

    # Replay and acting.
    sequence_length: constraints.Count = 20
    """With a memory: transitions in a replayed sequence, without the burn-in."""
    sequence_period: constraints.Count = 10
    """With a memory: steps between the starts of two sequences."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_period(self.sequence_length, self.sequence_period)
        if self.has_memory and self.n_step != 1:
            raise ValueError(
                f"`n_step` must be 1 with `memory`, got {self.n_step}. Set it to 1: a sequence's steps are "
                "learned from one by one."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrioritizedConfig(OffPolicyConfig):
    """Hyperparameters of prioritised replay; inherit it together with `TransitionConfig` or `SequenceConfig`.

    Source: Schaul et al. 2016, "Prioritized experience replay", the proportional variant.
    """

    # Priorities.
    prioritized: bool = True
    """Whether items are drawn by priority; otherwise the settings below have no effect."""
    priority_exponent: constraints.NonNegative = 0.6
    """Alpha: an item is drawn with a probability proportional to priority^alpha. With 0, all items whose
    priority is above 0 are drawn equally often."""
    importance_exponent: constraints.Share = 0.4
    """Initial beta of the importance weights. It rises linearly to 1 at the end of the run, earlier if
    sequences of a period above 1 begin more often than steps say, since episodes are no multiples of it. It
    stays constant if the length of the run is unknown. 0: it stays 0, and losses are not weighted."""
    new_priority: Literal["given", "largest"] = "given"
    """Priority of new items: the 1 of the adder, or the largest that any item has had, which needs replay in
    memory. If priorities are clipped to 1, as most agents do, both are the same."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CriticConfig(OffPolicyConfig):
    """Hyperparameters of critics and their number; inherit it together with `TransitionConfig`.

    Sources: [1] Bellemare et al. 2017, "A distributional perspective on reinforcement learning"; [2]
    Hafner et al. 2023, "Mastering diverse domains through world models"; [3] Farebrother et al. 2024, "Stop
    regressing"; [4] Shahriari et al. 2022, "Revisiting Gaussian mixture critics in off-policy reinforcement
    learning"; [5] Fujimoto et al. 2018, "Addressing function approximation error in actor-critic methods";
    [6] Lee et al. 2025, "SimBa: simplicity bias for scaling up parameters in deep reinforcement learning".
    """

    # Networks.
    torso: Literal["mlp", "relu", "simba"] = "mlp"
    """Torso of policies and critics: layers behind a LayerNorm, plain ReLU layers, or residual blocks [6]."""
    critic_layer_sizes: constraints.Sizes = (256, 256)
    """Units of each layer of a critic's torso; for SimBa, of each block, all equal."""
    # Critic.
    critic_head: Literal["scalar", "c51", "two_hot", "hl_gauss", "mixture"] = "scalar"
    """Prediction of a critic: the value; the return's distribution over bins [1] or as a mixture of Gaussians
    [4]; or the value by cross-entropy over bins, two-hot [2] or a histogram of a Gaussian [3]."""
    vmin: float = -150.0
    """Smallest discounted return in the bins; -150 to 150 is Acme's range for the control suite."""
    vmax: float = 150.0
    """Largest discounted return in the bins."""
    num_bins: Annotated[int, Constraint(">= 2", lambda value: value >= 2)] = 51
    """Number of bins from `vmin` to `vmax`; 51 as in [1]."""
    num_components: constraints.Count = 5
    """Gaussians of a mixture, as in Acme."""
    init_scale: constraints.Positive = 1.0
    """Initial standard deviation of the mixture's Gaussians, in units of the return."""
    num_returns: constraints.Count = 20
    """Returns sampled from a target mixture to learn from."""
    num_critics: constraints.Count = 1
    """Critics, each trained towards the same target."""
    critic_ensemble: Literal["mean", "min"] = "min"
    """Value of several critics: their mean, or the smallest value in each state and action [5]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.critic_head != "scalar" and not self.vmin < self.vmax:
            raise ValueError(f"`vmin` must be < `vmax`, got {self.vmin} and {self.vmax}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(
    RecurrentTransitionConfig, CriticConfig, settings.CriticObservationsConfig, PrioritizedConfig
):
    """Hyperparameters of agents that learn a policy and critics from transitions."""

    # Networks.
    policy_layer_sizes: constraints.Sizes = (256, 256)
    """Units of each layer of the policy's torso; for SimBa, of each block, all equal."""
    shared_encoder: bool = False
    """Whether the policy uses the critic's encoder, which only the critic's loss trains, instead of its own.
    Recommended for images, and always done with a memory. Source: Yarats et al. 2021, "Improving sample
    efficiency in model-free reinforcement learning from images"."""
    # Priorities.
    prioritized: bool = False

    def shared_parts(self) -> Iterator[str]:
        if self.shared_encoder:
            yield "`shared_encoder`"
        yield from super().shared_parts()
