"""Makes the parts of V-MPO."""

from typing import Any, Self

from minerva_acme import builders, losses, networks
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
        duals = losses.VMPODuals(
            init_temperature=self.config.init_temperature, init_alpha=self.config.init_alpha
        )
        return {**super().learner_arguments(parts), "duals": duals.to(parts.device)}
