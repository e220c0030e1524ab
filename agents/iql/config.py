"""Hyperparameters of IQL, and the preset."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from minerva_acme import constraints
from minerva_acme.agents.off_policy import config as off_policy_config
from minerva_acme.constraints import Constraint, Range


@dataclasses.dataclass(frozen=True, kw_only=True)
class IQLConfig(off_policy_config.ActorCriticConfig):
    """Hyperparameters of IQL. The defaults are what [1] uses for MuJoCo's tasks; CORL [2] uses the same.

    The value's torso has the sizes of a critic's (`critic_layer_sizes`).

    Sources: [1] Kostrikov, Nair and Levine 2021, "Offline reinforcement learning with implicit Q-learning",
    and the authors' code, github.com/ikostrikov/implicit_q_learning; [2] Tarasov et al. 2022, "CORL:
    research-oriented deep offline reinforcement learning library".
    """

    learning_rate: constraints.LearningRate = 3e-4
    """Learning rate of value, critics and policy."""
    target_rate: Annotated[constraints.Share, Range(1e-3, 0.05, log=True)] = 0.005
    """Share of the way that the target critics move towards the trained ones at each learner step."""
    expectile: Annotated[float, Constraint("in (0, 1)", lambda value: 0 < value < 1), Range(0.5, 0.95)] = 0.7
    """Tau, the expectile of the recorded actions' values that the value of a state is: with 0.5 it is their
    mean, and near 1 it is the best of them; 0.9 in [1] for AntMaze."""
    beta: Annotated[constraints.Positive, Range(0.1, 10.0, log=True)] = 3.0
    """Inverse temperature of the weights exp(beta A), per unit of the return: the larger, the greedier. The
    `beta` of CRR is its inverse."""
    max_weight: constraints.Positive = 100.0
    """Largest weight of a recorded action; 100 in the authors' code."""

    num_critics: constraints.Count = 2

    @property
    def needs_recorded_data(self) -> bool:
        return True


PRESETS: Mapping[str, IQLConfig] = MappingProxyType({"default": IQLConfig()})
"""Named settings: `default`."""
