"""Makes the parts of DQN."""

from collections.abc import Mapping, Sequence

import torch

from minerva_acme import learners, specs
from minerva_acme.agents import off_policy
from minerva_acme.agents.dqn import config as dqn_config
from minerva_acme.agents.dqn import learner
from minerva_acme.agents.dqn import networks as dqn_networks


class DQNBuilder(off_policy.TransitionBuilder[dqn_networks.DQNNetworks, dqn_config.DQNConfig]):
    """DQN over replayed transitions. Every part can be swapped by overriding its `make_` method."""

    config_class = dqn_config.DQNConfig
    takes_actions = "discrete"

    def make_networks(
        self, spec: specs.EnvironmentSpec, generator: torch.Generator
    ) -> dqn_networks.DQNNetworks:
        make = off_policy.make_dueling_member if self.config.dueling else off_policy.make_member
        encoder = self.whole_encoder(spec, generator)
        network = off_policy.make_critic(spec, self.config, generator, make, encoder)
        return dqn_networks.DQNNetworks(network, learners.make_target(network))

    def make_objectives(self, spec: specs.EnvironmentSpec) -> Mapping[str, off_policy.Objective]:
        config, loss = self.config, learner.DQNLosses(self.config).q_network
        return {"q_network": off_policy.Objective(loss, config.learning_rate)}

    def make_optimizer(self, name: str, parameters: learners.ParameterGroups) -> torch.optim.Optimizer:
        return learners.make_optimizer(parameters, adam_epsilon=self.config.adam_epsilon)

    def update_targets(self, networks: dqn_networks.DQNNetworks, num_steps: int) -> None:
        learners.update_target(
            networks.target_network,
            networks.q_network,
            num_steps,
            period=self.config.target_update_period,
        )

    def make_choice(self, spec: specs.EnvironmentSpec, evaluation: bool) -> off_policy.Choose:
        config = self.config
        if evaluation:
            return off_policy.argmax
        return off_policy.epsilon_greedy(
            off_policy.linear(config.initial_epsilon, config.final_epsilon, config.epsilon_steps)
        )

    @property
    def policy_variables(self) -> Sequence[str]:
        return ["q_network"]
