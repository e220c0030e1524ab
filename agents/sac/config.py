"""Hyperparameters of SAC, and the presets."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from minerva_acme import constraints
from minerva_acme.agents.off_policy import config as off_policy_config
from minerva_acme.constraints import Range


@dataclasses.dataclass(frozen=True, kw_only=True)
class SACConfig(off_policy_config.ActorCriticConfig):
    """Hyperparameters of SAC; defaults are from [1], table 1.

    Sources: [1] Haarnoja et al. 2018, "Soft actor-critic algorithms and applications"; [2] Yarats and
    Kostrikov 2020, github.com/denisyarats/pytorch_sac, on the dm_control suite; [3] Yarats, Kostrikov and
    Fergus 2021, "Image augmentation is all you need" (DrQ).
    """

    learning_rate: constraints.LearningRate = 3e-4
    """Learning rate of policy, critics and temperature."""
    target_rate: Annotated[constraints.Share, Range(1e-3, 0.05, log=True)] = 0.005
    """Share of the way that the target critics move towards the critics in each learner step."""
    initial_temperature: Annotated[constraints.Positive, Range(0.01, 1.0, log=True)] = 1.0
    """Initial temperature: the worth of one nat of entropy, in units of the return."""
    target_entropy: float | None = None
    """Entropy at which the temperature keeps the policy, nats. None: -1 per action dimension for actions
    scaled to [-1, 1], as in the authors' code, converted to the actual bounds."""
    random_steps: constraints.Natural = 1_000
    """Environment steps with random actions before the policy acts. With `--from`, the default is 0."""

    num_critics: constraints.Count = 2


PRESETS: Mapping[str, SACConfig] = MappingProxyType(
    {
        "default": SACConfig(),
        # Initial temperature and random steps are from [2], whose networks are four times as wide.
        "control": SACConfig(initial_temperature=0.1, random_steps=5_000, min_replay_size=5_000),
        # For observations that do not show all that matters: an update every two steps, from 32 sequences.
        "memory": SACConfig(
            memory="lstm",
            burn_in=10,
            batch_size=32,
            samples_per_insert=160.0,
            min_replay_size=100,
            max_replay_size=100_000,
        ),
        # From pixels as in [3], at a cost that a CPU can afford: smaller networks and batches, and three-step
        # returns as in its successor, DrQ-v2. Batches of 32 and a discount of 0.97 learned more slowly.
        "pixels": SACConfig(
            shared_encoder=True,
            image_encoder="small",
            random_shift=4,
            frame_stack=3,
            n_step=3,
            batch_size=64,
            samples_per_insert=64.0,
            learning_rate=5e-4,
            target_rate=0.02,
            discount=0.98,  # values are learned in fewer steps, if each action is repeated 8 times
            initial_temperature=1.0,  # with 0.1 cartpole swingup only ever pushed to one side
            random_steps=400,
            min_replay_size=400,
            max_replay_size=100_000,
        ),
    }
)
"""Named settings: `default`, `control` (dm_control suite), `memory` and `pixels` (its tasks from images)."""
