"""Makes the parts of R2D2."""

from collections.abc import Callable, Mapping, Sequence

import torch

from minerva_acme import learners, specs
from minerva_acme.agents import off_policy
from minerva_acme.agents.r2d2 import config as r2d2_config
from minerva_acme.agents.r2d2 import learner
from minerva_acme.agents.r2d2 import networks as r2d2_networks
from minerva_acme.replay import base as replay


class R2D2Builder(off_policy.SequenceBuilder[r2d2_networks.R2D2Networks, r2d2_config.R2D2Config]):
    """R2D2 over replayed sequences. Every part can be swapped by overriding its `make_` method."""

    config_class = r2d2_config.R2D2Config
    takes_actions = "discrete"

    def make_networks(
        self, spec: specs.EnvironmentSpec, generator: torch.Generator
    ) -> r2d2_networks.R2D2Networks:
        config, encoder = self.config, self.whole_encoder(spec, generator)
        make = off_policy.make_dueling_member if config.dueling else off_policy.make_member
        critic = off_policy.CriticConfig(torso=config.torso, critic_layer_sizes=config.layer_sizes)
        network = off_policy.make_critic(spec, critic, generator, make, encoder)
        return r2d2_networks.R2D2Networks(network, learners.make_target(network))

    def make_objectives(self, spec: specs.EnvironmentSpec) -> Mapping[str, off_policy.Objective]:
        config, loss = self.config, learner.R2D2Losses(self.config).q_network
        return {"q_network": off_policy.Objective(loss, config.learning_rate)}

    def make_optimizer(self, name: str, parameters: learners.ParameterGroups) -> torch.optim.Optimizer:
        return learners.make_optimizer(parameters, adam_epsilon=self.config.adam_epsilon)

    def update_targets(self, networks: r2d2_networks.R2D2Networks, num_steps: int) -> None:
        learners.update_target(
            networks.target_network,
            networks.q_network,
            num_steps,
            period=self.config.target_update_period,
        )

    def make_priorities(
        self, client: replay.ReplayClient | None, share_done: Callable[[int], float] | None
    ) -> learners.Priorities | None:
        return super().make_priorities(client, None)  # The importance exponent stays as it is.

    def make_choice(self, spec: specs.EnvironmentSpec, evaluation: bool) -> off_policy.Choose:
        return off_policy.argmax if evaluation else off_policy.epsilon_greedy_each(self.epsilons)

    @property
    def epsilons(self) -> Sequence[float]:
        """The share of random actions in each environment of this actor, by its `actor_index`."""
        config = self.config
        last = config.num_environments * (self.num_actors or 1) - 1
        first = config.num_environments * self.actor_index
        places = [(first + e) / last if last else 0.5 for e in range(config.num_environments)]
        return [config.first_epsilon ** (1.0 + config.epsilon_exponent * place) for place in places]

    @property
    def policy_variables(self) -> Sequence[str]:
        return ["q_network"]
