"""Hyperparameters of DQN, and the presets."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

from minerva_acme import constraints
from minerva_acme.agents.off_policy import config as off_policy_config
from minerva_acme.constraints import Range


@dataclasses.dataclass(frozen=True, kw_only=True)
class DQNConfig(
    off_policy_config.TransitionConfig, off_policy_config.CriticConfig, off_policy_config.PrioritizedConfig
):
    """Hyperparameters of DQN; defaults are for small tasks with vector observations.

    Sources: [1] Mnih et al. 2015, "Human-level control through deep reinforcement learning"; [2] van Hasselt
    et al. 2016, "Deep reinforcement learning with double Q-learning"; [3] Wang et al. 2016, "Dueling network
    architectures for deep reinforcement learning"; [4] Schaul et al. 2016, "Prioritized experience replay";
    [5] Hessel et al. 2018, "Rainbow: combining improvements in deep reinforcement learning".

    `n_step` and `prioritized` [4] are switches too; `critic_head` makes it distributional.
    """

    double: bool = True
    """Whether the trained network chooses the next action, whose value the target network computes [2]."""
    dueling: bool = True
    """Whether values combine a network for the state's value with one for the actions' advantages [3]."""
    learning_rate: constraints.LearningRate = 5e-4
    """Learning rate of the network."""
    adam_epsilon: constraints.Positive = 1e-8
    """Adam's epsilon: the learning rate falls where gradients are small next to it; 1.5e-4 in [5]."""
    max_grad_norm: constraints.Positive = 10.0
    """Global norm to which the gradient is clipped [3]."""
    max_td_error: constraints.Positive | None = None
    """Limit to which errors are clipped [1], in units of the return, as by a Huber loss; None for the squared
    error. Only for one critic with a scalar head."""
    target_update_period: Annotated[constraints.Count, Range(50, 5_000, log=True)] = 100
    """Learner steps between copies of the network to its target."""
    initial_epsilon: constraints.Share = 1.0
    """Initial share of random actions."""
    final_epsilon: Annotated[constraints.Share, Range(0.01, 0.2, log=True)] = 0.05
    """Final share of random actions."""
    epsilon_steps: constraints.Count = 10_000
    """Environment steps over which the share of random actions falls linearly."""

    critic_layer_sizes: constraints.Sizes = (128, 128)
    n_step: constraints.Count = 3
    batch_size: constraints.Count = 64
    samples_per_insert: constraints.Positive = 32.0
    max_replay_size: constraints.Count = 100_000
    prioritized: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_td_error is not None and (self.critic_head != "scalar" or self.num_critics > 1):
            raise ValueError(
                "`max_td_error` must be None unless there is one critic with a scalar head, "
                f"got {self.max_td_error} and {self.num_critics} x {self.critic_head}."
            )
        if self.dueling and self.critic_head == "mixture":
            raise ValueError(
                "`dueling` must be False with `critic_head` mixture, whose components have no advantages, "
                "got True."
            )


# Agents see every fourth frame of an Atari game, so a step is four frames.
_ATARI: Mapping[str, Any] = {
    "critic_layer_sizes": (512,),
    "batch_size": 32,
    "samples_per_insert": 8.0,  # a learner step every four steps
    "learning_rate": 6.25e-5,  # for Adam, from [5]; [1] uses RMSProp
    "max_replay_size": 1_000_000,
}
PRESETS: Mapping[str, DQNConfig] = MappingProxyType(
    {
        "default": DQNConfig(),
        # For MinAtar's games of 10 x 10 pixels, where the agent sees every step.
        "minatar": DQNConfig(
            torso="relu",
            batch_size=32,
            critic_layer_sizes=(128,),
            samples_per_insert=8.0,
            learning_rate=2.5e-4,
            min_replay_size=5_000,
            target_update_period=1_000,
            final_epsilon=0.02,
            epsilon_steps=50_000,
        ),
        # As in [1]: all switches off.
        "nature": DQNConfig(
            **_ATARI,
            double=False,
            dueling=False,
            n_step=1,
            min_replay_size=50_000,
            target_update_period=10_000,
            final_epsilon=0.1,
            epsilon_steps=250_000,
            max_td_error=1.0,
        ),
        # As in [5], but with epsilon instead of noisy networks: all switches on.
        "rainbow": DQNConfig(
            **_ATARI,
            adam_epsilon=1.5e-4,
            critic_head="c51",
            vmin=-10.0,
            vmax=10.0,
            prioritized=True,
            priority_exponent=0.5,
            min_replay_size=20_000,
            target_update_period=2_000,
            final_epsilon=0.01,
            epsilon_steps=62_500,
        ),
    }
)
"""Named settings: `default`, `minatar`, and for Atari `nature` and `rainbow`."""
