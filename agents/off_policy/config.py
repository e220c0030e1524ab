"""What can be set about every agent that learns from replay."""

import dataclasses
from typing import Annotated, Literal

from minerva_acme import constraints
from minerva_acme.constraints import Constraint


@dataclasses.dataclass(frozen=True, kw_only=True)
class OffPolicyConfig:
    """How much is kept, drawn and learned; agents add their own and change the defaults."""

    # Replay and acting.
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
    replay_fading: Annotated[float, Constraint("in (0, 1]", lambda value: 0 < value <= 1)] = 1.0
    """Factor by which an item's weight in sampling falls with each environment step after it was written,
    0.9999 in DR.Q; 1: age does not count. Below 1 it needs replay in memory. Source: Lyu et al. 2026,
    "Debiased model-based representations for sample-efficient continuous control"."""
    replay_fading_floor: Annotated[float, Constraint("in [1e-6, 1)", lambda value: 1e-6 <= value < 1)] = 0.1
    """Weight at which an item stops fading: with 0.9999 and the 0.1 of DR.Q, after 23,025 steps."""
    num_environments: constraints.Count = 1
    """Environments played at once, each with an adder of its own: one call of the policy acts in all."""
    variable_update_period: constraints.Count = 1
    """Environment steps between an actor's looks for newer weights."""
    max_skipped_batches: constraints.Natural = 10
    """Batches in a row that may be skipped for non-finite values; one more is an error."""
    acceleration: Literal["auto", "off", "compile"] = "auto"
    """Whether learner and actors may compute in faster ways than by plain torch; the log says which are
    taken. Numbers differ by float32 rounding. `compile`: losses and their gradients are compiled too, by
    torch.compile, which takes some seconds at the first batch."""
    image_encoder: Literal["nature", "small"] = "nature"
    """Convolutions for images of 36 pixels and more on each side: those of DQN for Atari, or some that take
    half of the time on a CPU. Smaller images have MinAtar's."""
    random_shift: constraints.Natural = 0
    """Pixels by which the learner shifts images at most, at random, up or down and to a side: see
    `learners.RandomShift`. 4 is usual for 84 x 84; 0: images stay."""

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

    # Replay and acting.
    n_step: constraints.Count = 1
    """Steps that a transition is folded over, fewer at the end of an episode."""
    frame_stack: constraints.Count = 1
    """Frames of an observation where the environment is in a `FrameStackWrapper`: replay holds each of them
    once. 1: observations are stored as they are."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceConfig(OffPolicyConfig):
    """Items are sequences."""

    # Replay and acting.
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

    # Priorities.
    prioritized: bool = True
    """Whether items are drawn by priority; if not, what follows here has no effect."""
    priority_exponent: constraints.NonNegative = 0.6
    """Alpha: an item is drawn with a probability proportional to priority^alpha; 0: all are drawn alike."""
    importance_exponent: constraints.Share = 0.4
    """Beta of the importance weights at the beginning. It rises linearly and is 1 at the end of the run;
    where nobody knows how long that is, it stays. 0: it stays too, and losses are not weighted."""
    new_priority: Literal["given", "largest"] = "given"
    """Priority of new items: the 1 of the adder, or the largest that any item has had, which needs replay in
    memory. Where priorities are clipped to 1, as those of most agents are, these are the same."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedEncoderConfig(OffPolicyConfig):
    """Whether policy and critic have one encoder; to be inherited beside `CriticConfig`."""

    shared_encoder: bool = False
    """Whether the policy sees through the critic's encoder, which the critic's loss alone trains, or through
    one of its own. Worth it for images. Source: Yarats et al. 2021, "Improving sample efficiency in
    model-free reinforcement learning from images"."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CriticConfig(OffPolicyConfig):
    """What critics predict and how many there are; to be inherited beside `TransitionConfig`.

    Sources: [1] Bellemare et al. 2017, "A distributional perspective on reinforcement learning"; [2]
    Hafner et al. 2023, "Mastering diverse domains through world models"; [3] Farebrother et al. 2024, "Stop
    regressing"; [4] Shahriari et al. 2022, "Revisiting Gaussian mixture critics in off-policy reinforcement
    learning"; [5] Fujimoto et al. 2018, "Addressing function approximation error in actor-critic methods";
    [6] Lee et al. 2025, "SimBa: simplicity bias for scaling up parameters in deep reinforcement learning".
    """

    # Networks.
    torso: Literal["mlp", "relu", "simba"] = "mlp"
    """What policies and critics are made of: layers behind a LayerNorm, plain layers of ReLU, or residual
    blocks [6]."""
    critic_layer_sizes: constraints.Sizes = (256, 256)
    """Units of each layer of a critic's torso; of SimBa's, of each block, all equal."""
    # Critic.
    critic_head: Literal["scalar", "c51", "two_hot", "hl_gauss", "mixture"] = "scalar"
    """What a critic predicts: the value; the return's distribution over bins [1] or as a mixture of Gaussians
    [4]; or the value by cross-entropy over bins, two-hot [2] or a histogram of a Gaussian [3]."""
    vmin: float = -150.0
    """Smallest return that bins hold, discounted; -150 to 150 is Acme's for the control suite."""
    vmax: float = 150.0
    """Largest return that bins hold, discounted."""
    num_bins: Annotated[int, Constraint(">= 2", lambda value: value >= 2)] = 51
    """Bins between them; 51 as in [1]."""
    num_components: constraints.Count = 5
    """Gaussians of a mixture, as in Acme."""
    init_scale: constraints.Positive = 1.0
    """Standard deviation of the mixture's Gaussians at first, in units of the return."""
    num_returns: constraints.Count = 20
    """Returns that are drawn of a target mixture to learn from."""
    num_critics: constraints.Count = 1
    """Critics, each trained towards the same target."""
    critic_ensemble: Literal["mean", "min"] = "min"
    """What several critics say together: their mean, or in each state and action the smallest value [5]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.critic_head != "scalar" and not self.vmin < self.vmax:
            raise ValueError(f"`vmin` must be < `vmax`, got {self.vmin} and {self.vmax}.")
