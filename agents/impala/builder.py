"""Makes the parts of IMPALA."""

from minerva_acme import builders, core, networks
from minerva_acme.agents import on_policy
from minerva_acme.agents.impala import config as impala_config
from minerva_acme.agents.impala import learner


class IMPALABuilder(on_policy.OnPolicyBuilder[impala_config.IMPALAConfig]):
    """IMPALA over rollouts. Every part can be swapped by overriding its `make_` method."""

    config_class = impala_config.IMPALAConfig
    learner_class = learner.IMPALALearner

    @property
    def name(self) -> str:
        return "IMPALA"

    def make_learner(self, parts: builders.LearnerParts[networks.ActorCritic]) -> core.Learner:
        network = parts.networks.to(parts.device)
        return self.learner_class(
            network=network,
            dataset=parts.dataset,
            preparer=self.rollout_preparer(network, parts.spec, parts.device),
            config=self.config,
            num_updates=parts.num_learner_steps,
            make_optimizer=self.make_optimizer,
            counter=parts.counter,
            logger=parts.logger,
            generator=parts.generator,
        )
