"""Makes the parts of CRR."""

from collections.abc import Mapping

import torch

from minerva_acme import learners, specs
from minerva_acme.agents import off_policy
from minerva_acme.agents.crr import config as crr_config
from minerva_acme.agents.crr import learner
from minerva_acme.agents.crr import networks as crr_networks


class CRRBuilder(off_policy.TransitionBuilder[crr_networks.CRRNetworks, crr_config.CRRConfig]):
    """CRR over transitions. Every part can be swapped by overriding its `make_` method."""

    config_class = crr_config.CRRConfig
    takes_actions = "continuous"

    def make_networks(
        self, spec: specs.EnvironmentSpec, generator: torch.Generator
    ) -> crr_networks.CRRNetworks:
        policy, critic = self.policy_and_critic(spec, generator, off_policy.make_clipped_policy)
        targets = learners.make_target(policy), learners.make_target(critic)
        return crr_networks.CRRNetworks(policy, critic, *targets)

    def make_objectives(self, spec: specs.EnvironmentSpec) -> Mapping[str, off_policy.Objective]:
        low, high = (torch.tensor(bound) for bound in specs.bounds(spec.actions))
        losses = learner.CRRLosses(self.config, low, high)
        return {
            "critic": off_policy.Objective(losses.critic, self.config.learning_rate),
            "policy": off_policy.Objective(losses.policy, self.config.learning_rate),
        }

    def update_targets(self, networks: crr_networks.CRRNetworks, num_steps: int) -> None:
        for target, online in (
            (networks.target_policy, networks.policy),
            (networks.target_critic, networks.critic),
        ):
            learners.update_target(target, online, num_steps, period=self.config.target_update_period)
