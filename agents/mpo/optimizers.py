"""What trains MPO's parameters."""

import math
from collections.abc import Iterable, Mapping

import torch
from torch import nn

from minerva_acme import learners, losses
from minerva_acme.agents.mpo.config import MPOConfig
from minerva_acme.agents.mpo.networks import MPONetworks


def trained_modules(networks: MPONetworks, config: MPOConfig) -> Mapping[str, nn.Module]:
    """What the losses of policy and critic train: each its own network, and the encoder by `encoder_loss`."""
    return {
        name: nn.ModuleList([module, *([networks.encoder] if config.trains_encoder(name) else [])])
        for name, module in (("policy", networks.policy), ("critic", networks.critic))
    }


def by_config(config: MPOConfig) -> learners.OptimizerFactory:
    """Makes the optimisers that the config names."""

    def make(name: str, parameters: learners.ParameterGroups) -> torch.optim.Optimizer:
        return learners.make_optimizer(
            parameters,
            kind=config.optimizer,
            adam_epsilon=config.adam_epsilon,
            sgd_momentum=config.sgd_momentum,
        )

    return make


def make_groups(
    trained: Mapping[str, nn.Module],
    duals: losses.MPODuals,
    config: MPOConfig,
    make_optimizer: learners.OptimizerFactory,
) -> Mapping[str, learners.Group]:
    """One optimiser each for policy, critic and duals; the duals' gradient is not clipped."""

    def group(name: str, max_norm: float, *parts: tuple[Iterable[nn.Parameter], float]) -> learners.Group:
        parameters = [{"params": [*tensors], "lr": rate} for tensors, rate in parts]
        return learners.Group(make_optimizer(name, parameters), max_norm)

    temperatures = nn.ModuleList([duals.temperature])
    if duals.penalty_temperature is not None:
        temperatures.append(duals.penalty_temperature)
    alphas = nn.ModuleList(duals.alphas().values())
    policy_rate = config.policy_learning_rate / config.m_steps  # M-steps share one step's worth of it
    return {
        "policy": group("policy", config.max_grad_norm, (trained["policy"].parameters(), policy_rate)),
        "critic": group(
            "critic", config.max_grad_norm, (trained["critic"].parameters(), config.critic_learning_rate)
        ),
        "duals": group(
            "duals",
            math.inf,
            (temperatures.parameters(), config.temperature_learning_rate),
            (alphas.parameters(), config.alpha_learning_rate),
        ),
    }
