"""Makes the parts of behaviour cloning."""

from collections.abc import Mapping

import torch

from minerva_acme import specs
from minerva_acme.agents import off_policy
from minerva_acme.agents.bc import config as bc_config
from minerva_acme.agents.bc import learner
from minerva_acme.agents.bc import networks as bc_networks


class BCBuilder(off_policy.TransitionBuilder[bc_networks.BCNetworks, bc_config.BCConfig]):
    """Behaviour cloning over transitions. Every part can be swapped by overriding its `make_` method."""

    config_class = bc_config.BCConfig
    takes_actions = "any"

    def check_spec(self, spec: specs.EnvironmentSpec) -> None:
        super().check_spec(spec)
        if self.config.loss == "squared_error" and isinstance(spec.actions, specs.DiscreteArray):
            raise ValueError(
                "`loss` must be likelihood with discrete actions, between which there is no distance, got "
                "squared_error."
            )

    def make_networks(
        self, spec: specs.EnvironmentSpec, generator: torch.Generator
    ) -> bc_networks.BCNetworks:
        config, encoder = self.config, self.whole_encoder(spec, generator)
        is_point = config.loss == "squared_error"
        make = off_policy.make_deterministic_policy if is_point else off_policy.make_clipped_policy
        torso = off_policy.TORSOS[config.torso]
        return bc_networks.BCNetworks(make(spec, config.policy_layer_sizes, generator, torso, encoder))

    def make_objectives(self, spec: specs.EnvironmentSpec) -> Mapping[str, off_policy.Objective]:
        losses = learner.BCLosses(*(torch.tensor(bound) for bound in specs.bounds(spec.actions)))
        return {"policy": off_policy.Objective(getattr(losses, self.config.loss), self.config.learning_rate)}

    def make_choice(self, spec: specs.EnvironmentSpec, evaluation: bool) -> off_policy.Choose:
        # A sample acts as the data did; without a distribution, there is only the action itself.
        is_greedy = evaluation or self.config.loss == "squared_error"
        return off_policy.mode if is_greedy else off_policy.sample
