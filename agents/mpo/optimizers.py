"""The optimisers of MPO's parameters."""

import math
from collections.abc import Iterable, Mapping

from torch import nn

from minerva_acme import learners, losses, networks
from minerva_acme.agents.mpo.config import MPOConfig
from minerva_acme.agents.mpo.networks import MPONetworks


def make_groups(
    online: MPONetworks,
    duals: losses.MPODuals,
    config: MPOConfig,
    make_optimizer: learners.OptimizerFactory,
) -> Mapping[str, learners.Group]:
    """Makes one optimiser each for policy, critic and duals; the duals' gradient is not clipped.

    Each loss trains its own network, and the encoder if `encoder_loss` says so. Parameters that a subclass of
    `MPODuals` adds are trained at the temperatures' rate.
    """

    def project(parts: Iterable[nn.Module]) -> None:
        for part in parts:
            networks.project_to_unit_norm(part)

    def network(name: str, module: nn.Module, rate: float) -> learners.Group:
        trained = nn.ModuleList([module, *([online.encoder] if config.trains_encoder(name) else [])])
        parameters = learners.parameter_groups(trained.parameters(), rate, config.weight_decay)
        optimizer = make_optimizer(name, parameters)
        if config.unit_norm_weights:
            projected = _projected(trained)
            project(projected)
            optimizer.register_step_post_hook(lambda *_: project(projected))
        return learners.Group(optimizer, config.max_grad_norm)

    alphas = [*nn.ModuleList(duals.alphas().values()).parameters()]
    of_alphas = {*alphas}
    temperatures = [each for each in duals.parameters() if each not in of_alphas]  # and what a subclass adds
    of_duals = [
        {"params": temperatures, "lr": config.temperature_learning_rate},
        {"params": alphas, "lr": config.alpha_learning_rate},
    ]
    policy_rate = config.policy_learning_rate / config.m_steps  # the M-steps share one step's rate
    return {
        "policy": network("policy", online.policy, policy_rate),
        "critic": network("critic", online.critic, config.critic_learning_rate),
        "duals": learners.Group(make_optimizer("duals", of_duals), math.inf),
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
