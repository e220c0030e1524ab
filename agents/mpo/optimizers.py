"""What trains MPO's parameters."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from minerva_acme import learners, losses
from minerva_acme.agents.mpo.config import MPOConfig
from minerva_acme.agents.mpo.networks import MPONetworks


def make_groups(
    networks: MPONetworks, duals: losses.MPODuals, config: MPOConfig
) -> Mapping[str, learners.Group]:
    """One optimiser each for policy, critic and duals; the duals' gradient is not clipped."""

    def group(max_norm: float, *parts: tuple[Iterable[nn.Parameter], float]) -> learners.Group:
        groups: list[dict[str, Any]] = [{"params": [*parameters], "lr": rate} for parameters, rate in parts]
        optimizer = learners.make_optimizer(
            groups,
            kind=config.optimizer,
            adam_epsilon=config.adam_epsilon,
            sgd_momentum=config.sgd_momentum,
        )
        return learners.Group(optimizer, max_norm)

    temperatures = [dual for dual in (duals.temperature, duals.penalty_temperature) if dual is not None]
    return {
        # The M-steps share one step's worth of learning rate.
        "policy": group(
            config.max_grad_norm, (networks.policy.parameters(), config.policy_learning_rate / config.m_steps)
        ),
        "critic": group(config.max_grad_norm, (networks.critic.parameters(), config.critic_learning_rate)),
        "duals": group(
            math.inf,
            (nn.ModuleList(temperatures).parameters(), config.temperature_learning_rate),
            (
                nn.ModuleList([duals.alpha_mean, duals.alpha_stddev]).parameters(),
                config.alpha_learning_rate,
            ),
        ),
    }
