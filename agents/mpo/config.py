"""Hyperparameters of MPO, and the presets."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from minerva_acme import constraints
from minerva_acme.agents import settings
from minerva_acme.agents.off_policy import config as off_policy_config
from minerva_acme.constraints import Constraint, Range
from minerva_acme.distributions.limits import Stddev

_TAKEN = frozenset({"mean", "stddev", "discrete", "q", "penalty"})  # in names of metrics, such as kl/mean_rel


@dataclasses.dataclass(frozen=True, kw_only=True)
class MPOConfig(
    off_policy_config.SequenceConfig,
    off_policy_config.MemoryConfig,
    off_policy_config.CriticConfig,
    settings.CriticObservationsConfig,
    off_policy_config.PrioritizedConfig,
):
    """Hyperparameters of MPO; defaults follow Acme's MPO with Retrace targets.

    Sources: [1] Abdolmaleki et al. 2018, "Maximum a posteriori policy optimisation"; [2] the same group's
    "Relative entropy regularized policy iteration", 2018; [3] Munos et al. 2016, "Safe and efficient
    off-policy RL"; [4] Acme's MPO agent; [5] Yarats et al. 2021, "Improving sample efficiency in
    model-free reinforcement learning from images"; [6] Lee et al. 2025, "Hyperspherical normalization for
    scalable deep reinforcement learning" (SimbaV2); [7] Dabney et al. 2021, "Temporally-extended
    epsilon-greedy exploration"; [8] Fujimoto et al. 2020, "An equivalence between loss functions and
    non-uniform sampling in experience replay" (LAP); [9] Lillicrap et al. 2016, "Continuous control with
    deep reinforcement learning"; [10] Abdolmaleki et al. 2020, "A distributional view on multi-objective
    policy optimization"; [11] Neunert et al. 2020, "Continuous-discrete reinforcement learning for hybrid
    control in robotics". For critics, see the sources in `CriticConfig`.

    With discrete actions, the E-step and the values weigh all actions by their probabilities: none are
    sampled, and the policy has one KL, bounded by `epsilon_mean` with the multiplier of the mean. With hybrid
    actions [11], whole actions are sampled, and the policy has three KLs, each with its own bound.
    """

    # Networks.
    critic_torso: Literal["same", "mlp", "relu", "simba", "batch_norm"] = "same"
    """Torso of the critic: `same` as `torso`, another of these, or an MLP with batch norm before each
    activation, whose statistics come from replayed pairs alone. Source: Palenicek et al. 2026, "XQC"."""
    policy_layer_sizes: constraints.Sizes = (256, 256, 256)
    """Units of each layer of the policy's torso; for SimBa, of each block, all equal."""
    critic_layer_sizes: constraints.Sizes = (512, 512, 256)
    unit_norm_weights: bool = False
    """Whether the weights of each unit of SimBa and batch norm torsos, of policy and critic, are scaled to
    norm 1 after each gradient step [6]. Behind batch norm, a head with bins is scaled too, as in XQC."""

    init_stddev: Stddev = 1.0
    """Standard deviation of the untrained policy, in units of the action, in [0.00092, 7.38]: log-std
    is clamped to [-7, 2], see `networks.GaussianPolicy`."""
    bounded_mean: bool = True
    """Whether a tanh keeps the policy's mean inside the bounds of the actions. Outside, all actions would be
    clipped to the same one, and nothing would bring the mean back."""

    encoder_loss: Literal["critic", "policy", "both"] = "critic"
    """Losses that train the encoder of observations, if it has parameters. In [5] only the critic's does, as
    the policy's gradient made the features worse; with `both`, each loss makes its own step. The memory is
    trained likewise; the policy learns from one state of a sequence, so its gradient goes back one step."""

    # Critic.
    critic_target: Literal["retrace", "n_step", "one_step"] = "retrace"
    """Regression target of the critic: Retrace [3], the return over the whole sequence, or one step."""
    scale_returns: bool = False
    """Whether the bins hold returns divided by their running scale [6]; see `networks.ReturnScale`. Then
    `vmin` and `vmax` are in units of this scale; -5 and 5 with 101 bins are usual."""
    critic_loss_steps: Literal["first", "all"] = "first"
    """Whether the critic learns from the first step of a sequence or from all of them."""
    retrace_lambda: constraints.Share = 0.95
    """Lambda of Retrace: 0 is one-step; with 1, only the importance weights cut traces."""
    retrace_mc_actions: constraints.Count = 8
    """Actions sampled per state to estimate its value under the target policy, if not discrete."""

    # Policy improvement.
    policy_loss_steps: Literal["first", "all"] = "first"
    """Whether the policy is improved in the first state of a sequence or in all, as in Acme's later MPO."""
    num_samples: Annotated[
        int,
        Constraint(
            ">= 2 (the weights of a single action are always 1 and teach nothing)", lambda value: value >= 2
        ),
    ] = 20
    """Actions sampled per state in the E-step (N); no effect with discrete actions."""
    epsilon: Annotated[constraints.Positive, Range(0.01, 1.0, log=True)] = 0.1
    """Bound on KL(nonparametric policy || target policy), nats."""
    temperature: Literal["solved", "learned"] = "solved"
    """Whether the temperatures that bring the E-step's KL to its bound are solved for in each batch, as in
    [1], so that the bound holds in any unit of the reward, or learned by gradient steps from
    `init_log_temperature`, as in [4]. This includes the penalty's temperature."""
    temperature_floor: constraints.NonNegative = 0.01
    """Smallest solved temperature, in units of the largest absolute reward seen so far. Before there was any
    reward, values are the critic's noise: all actions weigh the same, and the policy stays as it is. 0:
    none."""
    objectives: Annotated[
        tuple[str, ...],
        Constraint(
            f"different names, none of {', '.join(sorted(_TAKEN))}, which metrics have",
            lambda value: len({*value}) == len(value) and _TAKEN.isdisjoint(value) and all(value),
        ),
    ] = ()
    """Names of several objectives, each with its own critic head and temperature (MO-MPO [10]): rewards of
    the environment, `return` for the only one, or functions of `MPOBuilder.make_objective_functions`. (): one
    objective, the reward."""
    objective_epsilons: Annotated[
        tuple[float, ...], Constraint("bounds > 0", lambda value: all(epsilon > 0.0 for epsilon in value))
    ] = ()
    """Bounds in place of `epsilon`, nats, one for each objective: the larger, the more the policy prefers
    it."""
    epsilon_mean: Annotated[constraints.Positive, Range(5e-4, 0.05, log=True)] = 2.5e-3
    """Bound on the policy's KL by its mean, nats per action dimension; for a discrete policy, on its KL."""
    epsilon_stddev: constraints.Positive = 1e-6
    """Bound on the policy's KL by its standard deviation, nats per action dimension."""
    epsilon_discrete: constraints.Positive = 2.5e-3
    """Bound on the KL of a hybrid policy's choices, nats per choice."""
    per_dimension_constraint: bool = True
    """Whether each action dimension, and each choice, has its own KL bound. If not, their sums have one."""
    action_penalty: bool = False
    """If True, raw actions outside the bounds are penalised by one more objective, `penalty` ([10], [4])."""
    epsilon_penalty: constraints.Positive = 1e-3
    """Bound for the penalty's nonparametric policy, nats."""
    init_log_temperature: float = 10.0
    """Initial temperature before softplus, if it is learned."""
    init_log_alpha_mean: float = 10.0
    """Initial multiplier of the mean's KL before softplus."""
    init_log_alpha_stddev: float = 1000.0
    """Initial multiplier of the standard deviation's KL before softplus."""
    init_log_alpha_discrete: float = 10.0
    """Initial multiplier of the KL of a hybrid policy's choices before softplus."""
    policy_period: constraints.Count = 1
    """Learner steps for each improvement of the policy; the others are the critic's alone, and take about
    0.6 of the time."""
    m_steps: constraints.Count = 1
    """Policy gradient steps per E-step; each has the learning rate divided by their number."""

    # Optimisation.
    optimizer: Literal["adam", "sgd"] = "adam"
    """Optimiser of every parameter group."""
    policy_learning_rate: constraints.LearningRate = 1e-4
    """Learning rate of the policy."""
    critic_learning_rate: constraints.LearningRate = 1e-4
    """Learning rate of the critic."""
    temperature_learning_rate: constraints.Positive = 1e-2
    """Learning rate of the temperatures, if they are learned."""
    alpha_learning_rate: constraints.Positive = 1e-2
    """Learning rate of the KL multipliers."""
    adam_epsilon: constraints.Positive = 1e-8
    """Adam's epsilon."""
    sgd_momentum: Annotated[float, Constraint("in [0, 1)", lambda value: 0 <= value < 1)] = 0.9
    """Momentum, if the optimiser is SGD."""
    max_grad_norm: constraints.Positive = 40.0
    """Global norm to which the gradients of policy and critic are each clipped."""
    target_policy_update_period: constraints.Count = 100
    """Learner steps between copies of the policy to its target."""
    target_critic_update_period: constraints.Count = 100
    """Learner steps between copies of the critic to its target."""
    target_rate: Annotated[float, Constraint("in (0, 1]", lambda value: 0 < value <= 1)] = 1.0
    """Share of the way that both targets move to the trained networks at each learner step [9], whatever the
    two periods are; 0.005 is usual. 1: they are copied once per period."""

    # Speed.
    target_precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of the factors of the target critic's products. With bfloat16, values within a state must
    differ by more than 0.2 % of their size: the learner logs the difference and warns if it is too small."""

    # Replay and acting; the rest is in `SequenceConfig`.
    prioritized: bool = False
    priority_exponent: constraints.NonNegative = 0.4
    importance_exponent: constraints.Share = 0.0
    new_priority: Literal["given", "largest"] = "largest"
    min_priority: constraints.NonNegative = 1.0
    """Least priority of a sequence that was learned from. Priorities are the absolute TD errors of the first
    steps, in units of the return. With the defaults here, exponent 0.4 and the largest priority for new
    sequences, this is LAP [8] as in DR.Q, without the Huber loss that LAP uses."""
    sequence_length: constraints.Count = 5
    samples_per_insert: constraints.Positive = 32.0
    variable_update_period: constraints.Count = 10
    acting_policy: Literal["online", "target"] = "online"
    """Policy that the actors use."""
    noise_repeat: constraints.Count = 1
    """Steps for which an actor keeps its noise, so that it explores further if rewards are sparse; longer
    exploratory actions are the idea of [7]. Recorded densities are still the policy's at each step."""
    initial_noise_scale: constraints.Positive = 1.0
    """Factor of the policy's standard deviation with which actors explore at first, so that rewards are found
    while the policy itself stays narrow. It moves linearly to 1 within `noise_scale_steps`. The recorded
    density includes the factor. No effect on discrete actions."""
    noise_scale_steps: constraints.Count = 50_000
    """Environment steps within which the factor reaches 1."""
    random_steps: constraints.Natural = 0
    """Environment steps with uniformly random actions, before the policy acts, each kept for `noise_repeat`
    steps; their density is recorded. No effect on discrete actions and parts of actions: an untrained policy
    is near uniform."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory != "none" and self.critic_loss_steps == "first":
            raise ValueError(
                f"`critic_loss_steps` must be all with `memory` {self.memory}, got first: a gradient through "
                "one step does not teach a memory to remember. Set it to all, as the preset memory does."
            )
        if self.memory != "none" and self.encoder_loss == "policy" and self.policy_loss_steps == "first":
            raise ValueError(
                f"`encoder_loss` must be critic or both with `memory` {self.memory}, got policy: its "
                "gradient goes back through one step, which does not teach a memory to remember. It may be "
                "policy with `policy_loss_steps` all."
            )
        if self.unit_norm_weights and not {self.torso, self.critic_torso} & {"simba", "batch_norm"}:
            raise ValueError(
                f"`unit_norm_weights` must be False with `torso` {self.torso}, whose layers need their "
                "scale, got True. Set `torso` to simba, or `critic_torso` to simba or batch_norm."
            )
        if self.critic_torso == "batch_norm" and self.batch_size < 2:
            raise ValueError(
                "`batch_size` must be >= 2 with `critic_torso` batch_norm, which normalises pairs by the "
                f"batch's statistics, got {self.batch_size}."
            )
        if self.scale_returns and self.critic_head in ("scalar", "mixture"):
            raise ValueError(
                f"`scale_returns` must be False with `critic_head` {self.critic_head}, which has no bins, "
                "got True. Set `critic_head` to two_hot, hl_gauss or c51."
            )
        width = (self.vmax - self.vmin) / (self.num_bins - 1)
        if self.scale_returns and width > 1.0:
            raise ValueError(
                "With `scale_returns`, bins must be at most one standard deviation of the returns wide, got "
                f"{self.num_bins} bins from {self.vmin:g} to {self.vmax:g}, each {width:.3g} wide. Set "
                "`vmin` to -5, `vmax` to 5 and `num_bins` to 101."
            )
        self._check_objectives()
        if self.learns_distributions and self.critic_target == "retrace":
            raise ValueError(
                f"`critic_target` must be n_step or one_step with `critic_head` {self.critic_head}, which "
                "learns distributions, got retrace, which gives values. Of the heads with bins, "
                "two_hot and hl_gauss learn values."
            )

    def _check_objectives(self) -> None:
        num_objectives, num_epsilons = len(self.objectives), len(self.objective_epsilons)
        if num_objectives != num_epsilons:
            raise ValueError(
                f"`objective_epsilons` must be one bound for each of the {num_objectives} `objectives`, got "
                f"{num_epsilons}."
            )
        if self.objectives and self.learns_distributions:
            raise ValueError(
                "`critic_head` must be scalar, two_hot or hl_gauss with `objectives`, whose values are "
                f"compared, got {self.critic_head}."
            )
        if self.objectives and self.scale_returns:
            raise ValueError(
                "`scale_returns` must be False with `objectives`, whose returns have no common scale, got "
                "True."
            )

    @property
    def learns_distributions(self) -> bool:
        """Whether the critic is trained towards distributions of the return."""
        return self.critic_head in ("c51", "mixture")

    def trains_encoder(self, loss: str) -> bool:
        """Returns whether a loss, "policy" or "critic", trains the encoder too."""
        return self.encoder_loss in (loss, "both")


# Acme's example script for MPO on the dm_control suite, but with returns over five steps instead of four.
_ACME: Mapping[str, Any] = {
    "policy_layer_sizes": (256, 256, 256),
    "critic_layer_sizes": (256, 256, 256),
    "init_stddev": 0.5,
    "critic_target": "n_step",
    "retrace_mc_actions": 20,
    "policy_learning_rate": 3e-4,
    "critic_learning_rate": 3e-4,
    "epsilon_mean": 0.01,
    "action_penalty": True,
    "samples_per_insert": 64.0,
}

# `control` with today's networks and twice the update ratio, at a cost that a CPU can afford.
_SIMBA = MPOConfig(
    torso="simba",
    policy_layer_sizes=(128,),
    critic_layer_sizes=(128, 128),
    normalize_observations=True,
    weight_decay=0.01,
    # With 1.0, cheetah run often fell over under the mean action, having only ever acted with that noise.
    init_stddev=0.5,
    # From 10, as in Acme, they need thousands of updates to fall to useful values.
    init_log_temperature=0.0,
    init_log_alpha_mean=0.0,
    critic_loss_steps="all",
    policy_learning_rate=3e-4,
    critic_learning_rate=3e-4,
    epsilon_mean=0.01,
    sequence_length=3,
    retrace_mc_actions=4,
    num_samples=16,
    batch_size=128,
    samples_per_insert=64.0,
)

# Learns faster on the dm_control suite than the defaults: the values of Acme's example scripts.
_CONTROL = MPOConfig(
    policy_layer_sizes=(256, 256, 256),
    critic_layer_sizes=(256, 256, 256),
    # With "first", one of two seeds had not learned cartpole swingup by 40k steps.
    critic_loss_steps="all",
    policy_learning_rate=3e-4,
    critic_learning_rate=3e-4,
    epsilon_mean=0.01,
    samples_per_insert=64.0,
)

# `simba` that explores further at first and learns faster: noise begins twice as wide as the policy, and the
# critic learns in every step, at about 1.3 times the cost, with half as many policy updates and actions.
_OFTEN = dataclasses.replace(
    _SIMBA,
    initial_noise_scale=2.0,
    policy_learning_rate=1e-3,
    samples_per_insert=128.0,
    policy_period=2,
    retrace_mc_actions=2,
)
# Used by `minerva demo`, with each action repeated four times. Its limit is time, not steps: an update of
# these networks takes a fifth of one of SimBa's, so there is one for each step, and with high learning rates
# the pole is up after some thousand of them. With a standard deviation of 1 the returns of two of three seeds
# ended at 700, so only the noise is wide, at first.
_DEMO = dataclasses.replace(
    _OFTEN,
    torso="mlp",
    policy_layer_sizes=(64, 64),
    critic_layer_sizes=(128, 128),
    critic_learning_rate=1e-3,
    noise_scale_steps=5_000,
)
# With random steps first, and noise that is held: docs/frontier.md says what was seen of each change.
_MODERN = dataclasses.replace(_OFTEN, random_steps=5_000, min_replay_size=5_000, noise_repeat=8)
PRESETS: Mapping[str, MPOConfig] = MappingProxyType(
    {
        "default": MPOConfig(),
        "control": _CONTROL,
        # `simba` for tasks that one observation does not determine: half as many sequences, of ten steps,
        # from all of which policy and critic learn.
        "memory": dataclasses.replace(
            _SIMBA,
            init_stddev=1.0,
            memory="lstm",
            memory_size=128,
            burn_in=10,
            sequence_length=10,
            policy_loss_steps="all",
            batch_size=64,
            samples_per_insert=16.0,
        ),
        "modern": _MODERN,
        # `simba` for recorded episodes. Without new episodes, nothing corrects what the critic thinks of
        # actions at the bounds, where many samples are clipped to the same one.
        "offline": dataclasses.replace(_SIMBA, action_penalty=True),
        "simba": _SIMBA,
        "demo": _DEMO,
        # Distributional MPO: 51 atoms from -150 to 150; the target is projected from all 20 actions.
        "dmpo": MPOConfig(**_ACME, critic_head="c51"),
        # The same with a mixture of five Gaussians, which needs no bounds.
        "dmpo_mixture": MPOConfig(**_ACME, critic_head="mixture", init_scale=1e-3),
        # Bins too, but of values, so that Retrace targets are possible, at all steps of a sequence.
        "two_hot": MPOConfig(
            **{**_ACME, "critic_target": "retrace"}, critic_head="two_hot", critic_loss_steps="all"
        ),
        # The hyperparameters of the MPO that this library grew out of.
        "minerva": MPOConfig(
            policy_layer_sizes=(512, 256),
            critic_layer_sizes=(512, 256),
            discount=0.98,
            sequence_length=2,
            num_samples=64,
            epsilon=0.1,
            epsilon_mean=2.5e-3,
            epsilon_stddev=2.5e-3,
            temperature="learned",
            init_log_temperature=10.0,
            temperature_learning_rate=1e-3,
            alpha_learning_rate=1e-2,
            policy_learning_rate=1e-4,
            critic_learning_rate=1e-4,
            adam_epsilon=1e-5,
            max_grad_norm=1.0,
            max_replay_size=1_000_000,
            min_replay_size=10_000,
            samples_per_insert=256.0,
        ),
    }
)
"""Named settings: `default`, `control` (dm_control suite), `simba` (with today's networks), `modern` (`simba`
that explores further and updates more often), `offline` (`simba` for recorded episodes), `demo` (what
`minerva demo` trains with), `memory` (`simba` with a memory of the episode), `dmpo`, `dmpo_mixture` and
`two_hot` (the suite too, with critics of bins or mixtures), `minerva` (the original's)."""
