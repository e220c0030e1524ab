"""Makes the parts of IQL."""

from collections.abc import Mapping

import torch

from minerva_acme import learners, networks, specs
from minerva_acme.agents import off_policy
from minerva_acme.agents.iql import config as iql_config
from minerva_acme.agents.iql import learner
from minerva_acme.agents.iql import networks as iql_networks


class IQLBuilder(off_policy.TransitionBuilder[iql_networks.IQLNetworks, iql_config.IQLConfig]):
    """IQL over transitions. Every part can be swapped by overriding its `make_` method."""

    config_class = iql_config.IQLConfig
    takes_actions = "continuous"

    def make_networks(
        self, spec: specs.EnvironmentSpec, generator: torch.Generator
    ) -> iql_networks.IQLNetworks:
        encoder = self.whole_encoder(spec, generator)
        make_torso, sizes = off_policy.TORSOS[self.config.torso], self.config.critic_layer_sizes
        torso = make_torso(encoder.output_size, sizes, generator=generator)
        head = networks.ScalarHead(torso.output_size, generator=generator)
        value = networks.EncodedCritic(encoder, networks.Critic(torso, head, bounds=None))
        policy, critic = self.policy_and_critic(spec, generator, off_policy.make_clipped_policy)
        return iql_networks.IQLNetworks(policy, value, critic, learners.make_target(critic))

    def make_objectives(self, spec: specs.EnvironmentSpec) -> Mapping[str, off_policy.Objective]:
        low, high = (torch.tensor(bound) for bound in specs.bounds(spec.actions))
        losses = learner.IQLLosses(self.config, low, high)
        # The value first, as in the authors' code. The critics before the policy, which may share an encoder
        # with them: the first loss trains it.
        return {
            name: off_policy.Objective(loss, self.config.learning_rate)
            for name, loss in (("value", losses.value), ("critic", losses.critic), ("policy", losses.policy))
        }

    def update_targets(self, networks: iql_networks.IQLNetworks, num_steps: int) -> None:
        learners.update_target(
            networks.target_critic, networks.critic, num_steps, rate=self.config.target_rate
        )
