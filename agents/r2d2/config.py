"""Hyperparameters of R2D2, and the presets."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from minerva_acme import constraints
from minerva_acme.agents.off_policy import config as off_policy_config
from minerva_acme.constraints import Range


@dataclasses.dataclass(frozen=True, kw_only=True)
class R2D2Config(
    off_policy_config.SequenceConfig, off_policy_config.MemoryConfig, off_policy_config.PrioritizedConfig
):
    """Hyperparameters of R2D2; defaults are for small tasks with vector observations.

    Sources: [1] Kapturowski et al. 2019, "Recurrent experience replay in distributed reinforcement learning";
    [2] van Hasselt et al. 2016, "Deep reinforcement learning with double Q-learning"; [3] Wang et al. 2016,
    "Dueling network architectures for deep reinforcement learning"; [4] Horgan et al. 2018, "Distributed
    prioritized experience replay"; [5] Acme's R2D2 agent.
    """

    torso: Literal["mlp", "relu", "simba"] = "relu"
    """Torso between memory and values: layers behind a LayerNorm, plain ReLU layers, or residual blocks."""
    layer_sizes: constraints.Sizes = (64,)
    """Units of each layer of the torso; for SimBa, of each block, all equal."""
    double: bool = True
    """Whether the trained network chooses the next action, whose value the target network computes [2]."""
    dueling: bool = True
    """Whether values combine a network for the state's value with one for the actions' advantages [3]."""
    n_step: Annotated[constraints.Count, Range(1, 10)] = 5
    """Most rewards in a target before it bootstraps; fewer at the end of a sequence [1]."""
    learning_rate: constraints.LearningRate = 1e-3
    """Learning rate of the network."""
    adam_epsilon: constraints.Positive = 1e-3
    """Adam's epsilon: the learning rate falls where gradients are small next to it [1]."""
    max_grad_norm: constraints.Positive = 40.0
    """Global norm to which the gradient is clipped."""
    target_update_period: Annotated[constraints.Count, Range(50, 5_000, log=True)] = 200
    """Learner steps between copies of the network to its target."""
    max_priority_share: constraints.Share = 0.9
    """Eta: share of the largest error in a sequence's priority; the rest is the mean error's [1]."""
    first_epsilon: Annotated[constraints.Share, Range(0.1, 0.8)] = 0.4
    """Share of random actions in the first environment of the first actor [4]."""
    epsilon_exponent: constraints.NonNegative = 7.0
    """Alpha: environment i of N, over all actors, acts at random with a share of first_epsilon^(1 + alpha i /
    (N - 1)) [4]. A single environment has the share in the middle, at i / (N - 1) = 1/2."""

    memory: Literal["lstm", "gru"] = "lstm"
    burn_in: constraints.Natural = 10
    sequence_length: constraints.Count = 20
    sequence_period: constraints.Count = 10
    discount: constraints.Discount = 0.997
    batch_size: constraints.Count = 32
    samples_per_insert: constraints.Positive = 80.0  # a learner step every four environment steps
    min_replay_size: constraints.Count = 100
    max_replay_size: constraints.Count = 20_000
    num_environments: constraints.Count = 8
    priority_exponent: constraints.NonNegative = 0.6
    importance_exponent: constraints.Share = 1.0
    """Beta of the importance weights [4], which stays constant."""


PRESETS: Mapping[str, R2D2Config] = MappingProxyType(
    {
        "default": R2D2Config(),
        "memory": R2D2Config(),
        # The numbers of [5], which has 50,000 sequences before it learns and does not clip gradients; [1] has
        # a learning rate of 1e-4 and an epsilon of 1e-3.
        "acme": R2D2Config(
            adam_epsilon=1e-8,
            priority_exponent=0.9,
            importance_exponent=0.6,
            memory_size=512,
            layer_sizes=(512,),
            burn_in=40,
            sequence_length=80,
            sequence_period=40,
            target_update_period=2_500,
            batch_size=64,
            samples_per_insert=4.0,
            min_replay_size=1_000,
            max_replay_size=100_000,
        ),
    }
)
"""Named settings: `default`, which is also `memory`, and `acme`, for large tasks with many actors."""
