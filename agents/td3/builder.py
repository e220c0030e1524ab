"""Makes the parts of TD3."""

from collections.abc import Mapping
from typing import Self

import torch

from minerva_acme import learners, specs
from minerva_acme.agents import off_policy, requirements
from minerva_acme.agents.td3 import config as td3_config
from minerva_acme.agents.td3 import learner
from minerva_acme.agents.td3 import networks as td3_networks


class TD3Builder(off_policy.TransitionBuilder[td3_networks.TD3Networks, td3_config.TD3Config]):
    """TD3 over replayed transitions. Every part can be swapped by overriding its `make_` method."""

    config_class = td3_config.TD3Config
    takes_actions = "continuous"

    def for_learners(self, num_learners: int) -> Self:
        if (alpha := self.config.bc_alpha) is not None:
            why = "the loss is divided by the mean value of the whole batch"
            raise requirements.needs_whole_batch(self.name, "bc_alpha", alpha, num_learners, why)
        return super().for_learners(num_learners)

    def make_networks(
        self, spec: specs.EnvironmentSpec, generator: torch.Generator
    ) -> td3_networks.TD3Networks:
        make = off_policy.make_deterministic_policy
        policy, critic = self.policy_and_critic(spec, generator, make, policy_first=True)
        return td3_networks.TD3Networks(
            policy, critic, learners.make_target(policy), learners.make_target(critic)
        )

    def make_objectives(self, spec: specs.EnvironmentSpec) -> Mapping[str, off_policy.Objective]:
        config = self.config
        low, high = (torch.tensor(bound) for bound in specs.bounds(spec.actions))
        losses = learner.TD3Losses(config, low, high)
        return {
            "critic": off_policy.Objective(losses.critic, config.learning_rate),
            "policy": off_policy.Objective(losses.policy, config.learning_rate, period=config.policy_period),
        }

    def update_targets(self, networks: td3_networks.TD3Networks, num_steps: int) -> None:
        for target, online in (
            (networks.target_policy, networks.policy),
            (networks.target_critic, networks.critic),
        ):
            learners.update_target(
                target, online, num_steps, period=self.config.policy_period, rate=self.config.target_rate
            )

    def make_choice(self, spec: specs.EnvironmentSpec, evaluation: bool) -> off_policy.Choose:
        if evaluation:
            return off_policy.mode
        noise = off_policy.constant(self.config.exploration_stddev)
        explore = off_policy.gaussian_noise(noise, off_policy.half_range(spec.actions))
        return off_policy.random_at_first(self.config.random_steps, spec.actions, explore)
