"""Hyperparameters of CRR, and the presets."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from minerva_acme import constraints
from minerva_acme.agents.off_policy import config as off_policy_config
from minerva_acme.constraints import Range


@dataclasses.dataclass(frozen=True, kw_only=True)
class CRRConfig(off_policy_config.ActorCriticConfig):
    """Hyperparameters of CRR; defaults are from Acme's CRR [2].

    Sources: [1] Wang et al. 2020, "Critic regularized regression"; [2] Acme's CRR agent (JAX).
    """

    learning_rate: constraints.LearningRate = 3e-4
    """Learning rate of policy and critic."""
    target_update_period: constraints.Count = 100
    """Learner steps between copies of policy and critic to their targets."""
    weights: Literal["exponential", "binary"] = "exponential"
    """Weight of a recorded action in the policy's loss: it grows exponentially with its advantage, or is 1
    for actions that are better than the policy's and 0 for the others [1]."""
    beta: Annotated[constraints.Positive, Range(0.1, 10.0, log=True)] = 1.0
    """Temperature of the exponential weights, in units of the return: the smaller, the greedier."""
    max_weight: constraints.Positive = 20.0
    """Largest exponential weight [1]."""
    num_action_samples: constraints.Count = 4
    """Actions of the policy whose mean value an advantage is compared with [1]."""

    @property
    def needs_recorded_data(self) -> bool:
        return True


PRESETS: Mapping[str, CRRConfig] = MappingProxyType(
    {
        "default": CRRConfig(),
        # The same networks and rates, with the other of the paper's two weights.
        "binary": CRRConfig(weights="binary"),
    }
)
"""Named settings: `default` (exponential weights) and `binary`."""
