"""Makes the parts of V-MPO."""

import math
from typing import Any, Self

from torch import nn

from minerva_acme import builders, learners, losses, networks
from minerva_acme.agents import on_policy
from minerva_acme.agents.vmpo import config as vmpo_config
from minerva_acme.agents.vmpo import learner


class VMPOBuilder(on_policy.OnPolicyBuilder[vmpo_config.VMPOConfig]):
    """V-MPO over rollouts. Every part can be swapped by overriding its `make_` method."""

    config_class = vmpo_config.VMPOConfig
    learner_class = learner.VMPOLearner
    records_parameters = True  # for the KLs

    @property
    def name(self) -> str:
        return "V-MPO"

    def for_learners(self, num_learners: int) -> Self:
        raise ValueError(
            f"V-MPO must be trained by one learner, got {num_learners}: it selects the best samples of the "
            "whole batch. Train PPO or IMPALA, or leave the number out."
        )

    def learner_arguments(self, parts: builders.LearnerParts[networks.ActorCritic]) -> dict[str, Any]:
        config, arguments = self.config, super().learner_arguments(parts)
        duals = losses.VMPODuals(init_temperature=config.init_temperature, init_alpha=config.init_alpha)
        duals.to(parts.device)
        alphas = nn.ModuleList([duals.alpha_mean, duals.alpha_stddev])
        for name, module, rate in (
            ("temperature", duals.temperature, config.temperature_learning_rate),
            ("alphas", alphas, config.alpha_learning_rate),
        ):
            optimizer = self.make_optimizer(name, [{"params": [*module.parameters()], "lr": rate}])
            arguments["groups"][name] = learners.Group(optimizer, max_norm=math.inf)
        return {**arguments, "modules": {"duals": duals}, "duals": duals}
