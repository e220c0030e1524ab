"""Makes the parts of D4PG."""

from collections.abc import Mapping

import torch

from minerva_acme import learners, specs
from minerva_acme.agents import off_policy
from minerva_acme.agents.d4pg import config as d4pg_config
from minerva_acme.agents.d4pg import learner
from minerva_acme.agents.d4pg import networks as d4pg_networks


class D4PGBuilder(off_policy.TransitionBuilder[d4pg_networks.D4PGNetworks, d4pg_config.D4PGConfig]):
    """D4PG over replayed transitions. Every part can be swapped by overriding its `make_` method."""

    config_class = d4pg_config.D4PGConfig
    takes_actions = "continuous"

    def make_networks(
        self, spec: specs.EnvironmentSpec, generator: torch.Generator
    ) -> d4pg_networks.D4PGNetworks:
        make = off_policy.make_deterministic_policy
        policy, critic = self.policy_and_critic(spec, generator, make, policy_first=True)
        return d4pg_networks.D4PGNetworks(
            policy, critic, learners.make_target(policy), learners.make_target(critic)
        )

    def make_objectives(self, spec: specs.EnvironmentSpec) -> Mapping[str, off_policy.Objective]:
        config, losses = self.config, learner.D4PGLosses(self.config)
        return {
            "critic": off_policy.Objective(losses.critic, config.critic_learning_rate),
            "policy": off_policy.Objective(losses.policy, config.policy_learning_rate),
        }

    def update_targets(self, networks: d4pg_networks.D4PGNetworks, num_steps: int) -> None:
        for target, online, period in (
            (networks.target_policy, networks.policy, self.config.target_policy_update_period),
            (networks.target_critic, networks.critic, self.config.target_critic_update_period),
        ):
            learners.update_target(target, online, num_steps, period=period)

    def make_choice(self, spec: specs.EnvironmentSpec, evaluation: bool) -> off_policy.Choose:
        if evaluation:
            return off_policy.mode
        noise = off_policy.constant(self.config.exploration_stddev)
        explore = off_policy.gaussian_noise(noise, off_policy.half_range(spec.actions))
        return off_policy.random_at_first(self.config.random_steps, spec.actions, explore)
