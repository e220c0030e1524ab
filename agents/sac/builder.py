"""Makes the parts of SAC."""

from collections.abc import Mapping

import torch

from minerva_acme import learners, specs
from minerva_acme.agents import off_policy
from minerva_acme.agents.sac import config as sac_config
from minerva_acme.agents.sac import learner
from minerva_acme.agents.sac import networks as sac_networks


class SACBuilder(off_policy.TransitionBuilder[sac_networks.SACNetworks, sac_config.SACConfig]):
    """SAC over replayed transitions. Every part can be swapped by overriding its `make_` method."""

    config_class = sac_config.SACConfig
    takes_actions = "continuous"

    def make_networks(
        self, spec: specs.EnvironmentSpec, generator: torch.Generator
    ) -> sac_networks.SACNetworks:
        make = off_policy.make_gaussian_policy
        policy, critic = self.policy_and_critic(spec, generator, make)
        target, temperature = learners.make_target(critic), self.config.initial_temperature
        return sac_networks.SACNetworks(policy, critic, target, sac_networks.Temperature(temperature))

    def make_objectives(self, spec: specs.EnvironmentSpec) -> Mapping[str, off_policy.Objective]:
        config, entropy = self.config, self.config.target_entropy
        if entropy is None:
            entropy = float((off_policy.half_range(spec.actions).double().log() - 1.0).sum())
        losses = learner.SACLosses(config, entropy)
        return {
            "critic": off_policy.Objective(losses.critic, config.learning_rate),
            "policy": off_policy.Objective(
                losses.policy, config.learning_rate, modules=["policy", "temperature"]
            ),
        }

    def update_targets(self, networks: sac_networks.SACNetworks, num_steps: int) -> None:
        learners.update_target(
            networks.target_critic, networks.critic, num_steps, rate=self.config.target_rate
        )

    def make_choice(self, spec: specs.EnvironmentSpec, evaluation: bool) -> off_policy.Choose:
        if evaluation:
            return off_policy.mode
        return off_policy.random_at_first(self.config.random_steps, spec.actions, off_policy.sample)
