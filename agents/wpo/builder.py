"""Makes the parts of WPO."""

import functools
from collections.abc import Mapping

import torch

from minerva_acme import learners, specs
from minerva_acme.agents import off_policy
from minerva_acme.agents.wpo import config as wpo_config
from minerva_acme.agents.wpo import learner
from minerva_acme.agents.wpo import networks as wpo_networks


class WPOBuilder(off_policy.TransitionBuilder[wpo_networks.WPONetworks, wpo_config.WPOConfig]):
    """WPO over replayed transitions. Every part can be swapped by overriding its `make_` method."""

    config_class = wpo_config.WPOConfig
    takes_actions = "continuous"

    def make_networks(
        self, spec: specs.EnvironmentSpec, generator: torch.Generator
    ) -> wpo_networks.WPONetworks:
        make = functools.partial(
            off_policy.make_clipped_policy, initial_stddev=self.config.init_stddev, bounded_mean=True
        )
        policy, critic = self.policy_and_critic(spec, generator, make)
        targets = learners.make_target(policy), learners.make_target(critic)
        return wpo_networks.WPONetworks(policy, critic, *targets)

    def make_objectives(self, spec: specs.EnvironmentSpec) -> Mapping[str, off_policy.Objective]:
        losses = learner.WPOLosses(self.config)
        return {
            "critic": off_policy.Objective(losses.critic, self.config.learning_rate),
            "policy": off_policy.Objective(losses.policy, self.config.learning_rate),
        }

    def update_targets(self, networks: wpo_networks.WPONetworks, num_steps: int) -> None:
        for target, online in (
            (networks.target_policy, networks.policy),
            (networks.target_critic, networks.critic),
        ):
            learners.update_target(target, online, num_steps, period=self.config.target_update_period)
