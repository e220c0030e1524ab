"""The optimisers of MPO's parameters."""

import math
from collections.abc import Iterable, Mapping

import torch
from torch import nn

from minerva_acme import learners, losses, networks
from minerva_acme.agents.mpo.config import MPOConfig
from minerva_acme.agents.mpo.networks import MPONetworks


def trained_modules(trained: MPONetworks, config: MPOConfig) -> Mapping[str, nn.Module]:
    """Returns the modules that each loss trains: its own network, and by `encoder_loss` the encoder."""
    return {
        name: nn.ModuleList([module, *([trained.encoder] if config.trains_encoder(name) else [])])
        for name, module in (("policy", trained.policy), ("critic", trained.critic))
    }


def by_config(config: MPOConfig) -> learners.OptimizerFactory:
    """Returns a function that makes the optimiser that the config names."""

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
    """Makes one optimiser each for policy, critic and duals; the duals' gradient is not clipped.

    Parameters that a subclass of `MPODuals` adds are trained at the temperatures' rate.
    """

    def group(name: str, max_norm: float, *parts: tuple[Iterable[nn.Parameter], float]) -> learners.Group:
        parameters = [{"params": [*tensors], "lr": rate} for tensors, rate in parts]
        return learners.Group(make_optimizer(name, parameters), max_norm)

    def project(parts: Iterable[nn.Module]) -> None:
        for part in parts:
            networks.project_to_unit_norm(part)

    def network(name: str, rate: float) -> learners.Group:
        module = trained[name]
        parameters = learners.parameter_groups(module.parameters(), rate, config.weight_decay)
        optimizer = make_optimizer(name, parameters)
        if config.unit_norm_weights:
            projected = _projected(module)
            project(projected)
            optimizer.register_step_post_hook(lambda *_: project(projected))
        return learners.Group(optimizer, config.max_grad_norm)

    alphas = [*nn.ModuleList(duals.alphas().values()).parameters()]
    of_alphas = {*alphas}
    temperatures = [each for each in duals.parameters() if each not in of_alphas]  # and what a subclass adds
    policy_rate = config.policy_learning_rate / config.m_steps  # the M-steps share one step's rate
    return {
        "policy": network("policy", policy_rate),
        "critic": network("critic", config.critic_learning_rate),
        "duals": group(
            "duals",
            math.inf,
            (temperatures, config.temperature_learning_rate),
            (alphas, config.alpha_learning_rate),
        ),
    }


def project_target(target: nn.Module, online: nn.Module, config: MPOConfig) -> None:
    """Scales the weights of an averaged target network to norm 1 where those of the online network are."""
    if config.unit_norm_weights and config.target_rate < 1.0:
        for part, trained in zip(_projected(target), _projected(online), strict=True):
            networks.project_to_unit_norm(part, trained)


def _projected(module: nn.Module) -> list[nn.Module]:
    """Returns the parts of a network whose units need no scale: torsos with norms, and XQC's last layers.

    XQC projects the layer of the logits too. A value or a mixture's parameters would be bounded by that.
    """
    torsos = [part for part in module.modules() if isinstance(part, networks.SimBa | networks.BatchNormMLP)]
    heads = [
        part.head
        for part in module.modules()
        if isinstance(part, networks.Critic)
        and isinstance(part.torso, networks.BatchNormMLP)
        and isinstance(part.head, networks.CategoricalCriticHead)
    ]
    return [*torsos, *heads]
