"""Makes the parts of V-MPO."""

from minerva_acme import builders, core, losses, networks
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

    def make_learner(self, parts: builders.LearnerParts[networks.ActorCritic]) -> core.Learner:
        config, network = self.config, parts.networks.to(parts.device)
        duals = losses.VMPODuals(init_temperature=config.init_temperature, init_alpha=config.init_alpha)
        return self.learner_class(
            network=network,
            duals=duals.to(parts.device),
            dataset=parts.dataset,
            preparer=self.rollout_preparer(network, parts.spec, parts.device),
            config=config,
            num_updates=parts.num_learner_steps,
            make_optimizer=self.make_optimizer,
            counter=parts.counter,
            logger=parts.logger,
            generator=parts.generator,
        )
