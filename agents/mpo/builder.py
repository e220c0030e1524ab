"""Makes the parts of MPO."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from minerva_acme import (
    acceleration,
    builders,
    core,
    counting,
    learners,
    loggers,
    losses,
    networks,
    specs,
    types,
)
from minerva_acme.agents import acting, actions, off_policy, requirements
from minerva_acme.agents.mpo import config as mpo_config
from minerva_acme.agents.mpo import learner, optimizers, targets
from minerva_acme.agents.mpo import networks as mpo_networks
from minerva_acme.replay import base as replay


class MPOBuilder(off_policy.SequenceBuilder[mpo_networks.MPONetworks, mpo_config.MPOConfig]):
    """MPO over replayed sequences. Every part can be swapped by overriding its `make_` method."""

    learner_class: type[learner.MPOLearner] = learner.MPOLearner
    """What `make_learner` makes: a subclass may improve the policy by another loss."""

    def check_spec(self, spec: specs.EnvironmentSpec) -> None:
        super().check_spec(spec)
        requirements.check_observations("MPO", spec)
        requirements.check_actions("MPO", spec)
        if self._config.action_penalty and isinstance(spec.actions, specs.DiscreteArray):
            raise ValueError(
                "`action_penalty` must be False with discrete actions, which never leave their bounds, got "
                "True."
            )

    def make_networks(
        self, spec: specs.EnvironmentSpec, generator: torch.Generator
    ) -> mpo_networks.MPONetworks:
        return mpo_networks.make_networks(spec, self._config, generator, self.make_encoder(spec, generator))

    def make_encoder(self, spec: specs.EnvironmentSpec, generator: torch.Generator) -> networks.Encoder:
        """Makes what comes between observations and torsos, one for policy and critic."""
        return off_policy.make_encoder(spec, self._config, generator)

    def make_learner(
        self,
        *,
        networks: mpo_networks.MPONetworks,
        dataset: Iterator[Any],
        client: replay.ReplayClient | None = None,
        spec: specs.EnvironmentSpec,
        counter: counting.Counter,
        logger: loggers.Logger,
        generator: torch.Generator,
        device: torch.device,
        num_learner_steps: int | None = None,
    ) -> core.Learner:
        config = self._config
        discrete = isinstance(spec.actions, specs.DiscreteArray)
        return self.learner_class(
            networks=networks,
            duals=losses.MPODuals(
                num_dimensions=1
                if discrete or not config.per_dimension_constraint
                else spec.actions.shape[0],
                init_log_temperature=config.init_log_temperature,
                init_log_alpha_mean=config.init_log_alpha_mean,
                init_log_alpha_stddev=None if discrete else config.init_log_alpha_stddev,
                action_penalty=config.action_penalty,
            ),
            dataset=self.shifted(dataset, spec, generator),
            critic_target=self.make_critic_target(),
            config=config,
            action_spec=spec.actions,
            counter=counter,
            logger=logger,
            generator=generator,
            device=device,
            make_optimizer=self.make_optimizer,
            num_updates=num_learner_steps,
        )

    def make_critic_target(self) -> targets.CriticTarget:
        """Makes the function that computes what the critic regresses to."""
        config = self._config
        if config.critic_target == "retrace":
            return targets.retrace(lambda_=config.retrace_lambda, num_actions=config.retrace_mc_actions)
        make = targets.n_step if config.critic_target == "n_step" else targets.one_step
        return make(
            num_actions=config.retrace_mc_actions,
            num_returns=config.num_samples if config.learns_distributions else None,
        )

    def make_policy(
        self,
        networks: mpo_networks.MPONetworks,
        spec: specs.EnvironmentSpec,
        generator: torch.Generator,
        evaluation: bool = False,
        counter: counting.Counter | None = None,
    ) -> builders.AgentPolicy:
        return acting.ModulePolicy(
            module=networks.acting(),
            choose=self.make_choice(spec, evaluation),
            raw_actions=actions.raw_actions(spec.actions, squash=False),
            generator=generator,
            acceleration=acceleration.Acceleration(self._config.acceleration),
            counter=counter,
            evaluation=evaluation,
            record="nothing" if evaluation else "choice",
            noise_repeat=1 if evaluation else self._config.noise_repeat,
        )

    @property
    def policy_variables(self) -> Sequence[str]:
        return ["policy" if self._config.acting_policy == "online" else "target_policy"]

    def make_optimizer(self, name: str, parameters: learners.ParameterGroups) -> torch.optim.Optimizer:
        return optimizers.by_config(self._config)(name, parameters)

    def _extras_spec(self, spec: specs.EnvironmentSpec) -> types.NestedSpec:
        return acting.extras_spec(spec)
