"""Hyperparameters of TD3, and the presets."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from minerva_acme import constraints
from minerva_acme.agents.off_policy import config as off_policy_config
from minerva_acme.constraints import Range


@dataclasses.dataclass(frozen=True, kw_only=True)
class TD3Config(off_policy_config.ActorCriticConfig):
    """Hyperparameters of TD3; defaults are from the authors' code, github.com/sfujim/TD3, except for 1,000
    steps before the policy acts and learns.

    Sources: [1] Fujimoto et al. 2018, "Addressing function approximation error in actor-critic methods"; [2]
    Yarats et al. 2021, "Mastering visual continuous control" (DrQ-v2), on the dm_control suite; [3] Fujimoto
    and Gu 2021, "A minimalist approach to offline reinforcement learning" (TD3+BC).
    """

    learning_rate: constraints.LearningRate = 3e-4
    """Learning rate of policy and critics; 1e-3 in [1]."""
    target_rate: Annotated[constraints.Share, Range(1e-3, 0.05, log=True)] = 0.005
    """Share of the way that the target networks move towards the trained ones at each policy step."""
    policy_period: constraints.Count = 2
    """Learner steps from one step of the policy, and of the targets, to the next [1]."""
    target_stddev: constraints.NonNegative = 0.2
    """Standard deviation of the target policy's noise [1], in units of half the action's range."""
    target_noise_clip: constraints.NonNegative = 0.5
    """Largest magnitude of the target policy's noise [1], in the same units."""
    bc_alpha: constraints.Positive | None = None
    """Weight of the values in the policy's loss of TD3+BC [3], whose other part keeps the policy near the
    recorded actions; 2.5 is usual for learning from data alone. None: TD3, whose policy follows the values
    only."""
    exploration_stddev: Annotated[constraints.NonNegative, Range(0.05, 0.5)] = 0.1
    """Standard deviation of the exploration noise [1], in the same units."""
    random_steps: constraints.Natural = 1_000
    """Environment steps with random actions before the policy acts; 25,000 in the authors' code. With
    `--from`, the default is 0."""

    num_critics: constraints.Count = 2

    @property
    def needs_recorded_data(self) -> bool:
        return self.bc_alpha is not None


PRESETS: Mapping[str, TD3Config] = MappingProxyType(
    {
        "default": TD3Config(),
        # For observations that do not show all that matters: an update every two steps, from 32 sequences.
        "memory": TD3Config(
            memory="lstm",
            burn_in=10,
            batch_size=32,
            samples_per_insert=160.0,
            min_replay_size=100,
            max_replay_size=100_000,
        ),
        # Three-step returns, a faster target and more noise, as in [2].
        "control": TD3Config(n_step=3, target_rate=0.01, exploration_stddev=0.2, target_noise_clip=0.3),
        # TD3+BC, from recorded data alone [3].
        "offline": TD3Config(bc_alpha=2.5),
    }
)
"""Named settings: `default`, `memory`, `control` (dm_control suite) and `offline` (TD3+BC)."""
