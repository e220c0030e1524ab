"""Makes the parts of MPO."""

import functools
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from minerva_acme import acceleration, builders, core, counting, learners, losses, specs, types
from minerva_acme.agents import acting, actions, off_policy, requirements
from minerva_acme.agents.mpo import config as mpo_config
from minerva_acme.agents.mpo import critics, health, improvement, modes, objectives, optimizers, targets
from minerva_acme.agents.mpo import losses as mpo_losses
from minerva_acme.agents.mpo import networks as mpo_networks
from minerva_acme.agents.mpo import parts as mpo_parts
from minerva_acme.replay import base as replay


class MPOBuilder(off_policy.SequenceBuilder[mpo_networks.MPONetworks, mpo_config.MPOConfig]):
    """MPO over replayed sequences. Every part can be swapped by overriding its `make_` method."""

    config_class = mpo_config.MPOConfig
    takes_actions = "any or hybrid"
    replaced_hooks = ("make_objectives", "update_targets")  # by `make_learner`

    def check_spec(self, spec: specs.EnvironmentSpec) -> None:
        if self.config.objectives:
            objectives.check(spec, self.config, self.make_objective_functions())
        super().check_spec(spec)
        if self.config.action_penalty and isinstance(spec.actions, specs.DiscreteArray):
            raise ValueError(
                "`action_penalty` must be False with discrete actions, which never leave their bounds, got "
                "True."
            )

    def make_networks(
        self, spec: specs.EnvironmentSpec, generator: torch.Generator
    ) -> mpo_networks.MPONetworks:
        encoder = self.whole_encoder(spec, generator)
        return mpo_networks.make_networks(spec, self.config, generator, encoder)

    def make_adder(self, client: replay.ReplayClient, spec: specs.EnvironmentSpec) -> core.Adder:
        adder = super().make_adder(client, spec)
        if not self.config.scale_returns:
            return adder
        from minerva_acme.adders import RunningReturnAdder

        return RunningReturnAdder(adder, discount=self.config.discount)

    @property
    def table_contents(self) -> Mapping[str, str | float]:
        return {"discount": self.config.discount} if self.config.scale_returns else super().table_contents

    def make_learner(self, parts: builders.LearnerParts[mpo_networks.MPONetworks]) -> core.Learner:
        """Makes the learner of `losses.MPOLosses`.

        Variables: `policy`, `critic`, `target_policy`, `target_critic`, each a dict of arrays. A policy is
        served and saved with its encoder, as `MPONetworks.acting` returns it. The targets start as copies.
        """
        config, device = self.config, parts.device
        accelerated = acceleration.Acceleration(config.acceleration)
        on_device = [module.to(device) for module in parts.networks]
        online = mpo_networks.MPONetworks(*map(accelerated.network, parts.networks._fields, on_device))
        online.critic.eval()  # and so its copy, the target; for training see `MPOLosses.critic`
        duals = self.make_duals(parts.spec).to(device)
        groups = optimizers.make_groups(online, duals, config, self.make_optimizer)
        target = online.copy()  # after the projection to unit norm
        floor = None
        if config.temperature == "solved":
            num_rewards = len(objectives.of_rewards(parts.spec, config)) or None
            floor = objectives.TemperatureFloor(config.temperature_floor, num_rewards).to(device)
        nets = mpo_losses.MPOModules(online, target, duals, floor)
        of_batch = self._losses_of(nets, parts, accelerated)
        loss_functions = {"critic": of_batch.critic, "duals": of_batch.duals, "policy": of_batch.policy}
        modules = {
            "policy": online.acting(),
            "critic": online.critic,
            "target_policy": target.acting(),
            "target_critic": target.critic,
            "duals": duals,
        }
        encoders = {"encoder": online.encoder, "target_encoder": target.encoder}
        if config.critic_observations:  # The policies' encoders lack the critic's part.
            modules |= encoders
        if floor is not None:
            modules |= {"temperature_floor": floor}
        of_returns = [*mpo_parts.return_statistics(online.critic, config)]
        decaying = {name: groups[name] for name in ("policy", "critic")}
        return self.learner_class(
            networks=nets,
            losses=loss_functions,
            groups=groups,
            periods={"duals": config.policy_period, "policy": config.policy_period},
            acceleration=accelerated,
            estimate=of_batch.estimate,
            parts=[
                mpo_parts.Targets(online, target, config),
                *self.learner_parts(encoders, decaying, parts),
                *of_returns,
                health.Health(),
            ],
            chains=[["critic"], ["duals", *["policy"] * config.m_steps]],
            modules=modules,
            variables=["policy", "critic", "target_policy", "target_critic"],
            takes=learners.Kind(
                types.Trajectory,
                "TrajectoryLayout",
                (
                    "raw_action",
                    *["log_prob"] * (config.critic_target == "retrace"),
                    *["running_return"] * len(of_returns),
                ),
            ),
            why_plain={name: why for name in loss_functions if (why := of_batch.why_plain(online, name))},
            **self.learner_arguments(parts),
        )

    def _losses_of(
        self,
        nets: mpo_losses.MPOModules,
        parts: builders.LearnerParts[mpo_networks.MPONetworks],
        accelerated: acceleration.Acceleration,
    ) -> mpo_losses.MPOLosses:
        config, action_spec, device = self.config, parts.spec.actions, parts.device
        as_critic = functools.partial(
            critics.make_critic,
            action_spec=action_spec,
            has_objectives=bool(config.objectives),
            device=device,
        )
        low, high = (torch.from_numpy(bound).to(device) for bound in actions.bounds(action_spec))
        functions = self.make_objective_functions()
        return mpo_losses.MPOLosses(
            config=config,
            online_q=as_critic(nets.online.critic),
            target_q=as_critic(accelerated.target_critic(nets.target.critic, config.target_precision)),
            plain_target_q=as_critic(nets.target.critic),
            critic_target=self.make_critic_target(),
            policy_loss=self.make_policy_loss(),
            critic_loss=self.make_critic_loss(),
            low=low,
            high=high,
            raw_actions=actions.raw_actions(action_spec, squash=False).on(device),
            rewards=objectives.of_rewards(parts.spec, config),
            functions={name: functions[name] for name in config.objectives if name in functions},
            for_training=modes.parts_for_training(nets.online.encoder, nets.online.policy),
            ranks=parts.ranks,
        )

    def make_duals(self, spec: specs.EnvironmentSpec) -> losses.MPODuals:
        """Makes the Lagrange multipliers: of the policy's KLs, and the temperatures if they are learned."""
        config, discrete = self.config, isinstance(spec.actions, specs.DiscreteArray)
        continuous, num_values = actions.parts(spec.actions)
        is_summed = discrete or not config.per_dimension_constraint
        return losses.MPODuals(
            num_dimensions=1 if is_summed else continuous.shape[0],
            init_log_temperature=config.init_log_temperature,
            init_log_alpha_mean=config.init_log_alpha_mean,
            init_log_alpha_stddev=None if discrete else config.init_log_alpha_stddev,
            action_penalty=config.action_penalty,
            num_objectives=len(config.objectives) or None,
            num_choices=1 if is_summed else len(num_values),
            init_log_alpha_discrete=config.init_log_alpha_discrete if num_values else None,
        )

    def make_policy_loss(self) -> improvement.PolicyLoss:
        """Makes the function that computes the policy's improvement on a batch."""
        return improvement.e_step

    def make_objective_functions(self) -> Mapping[str, objectives.ObjectiveFunction]:
        """Makes the functions of states and raw actions that `objectives` may name, besides rewards."""
        return {}

    @property
    def takes_several_rewards(self) -> bool:
        return bool(self.config.objectives)

    def make_critic_loss(self) -> mpo_losses.CriticLoss:
        """Makes the function that computes the critic's loss from its prediction and its target."""
        return critics.critic_loss

    def make_critic_target(self) -> targets.CriticTarget:
        """Makes the function that computes the critic's regression targets."""
        config = self.config
        if config.critic_target == "retrace":
            return targets.retrace(lambda_=config.retrace_lambda, num_actions=config.retrace_mc_actions)
        make = targets.n_step if config.critic_target == "n_step" else targets.one_step
        return make(
            num_actions=config.retrace_mc_actions,
            num_returns=config.num_returns if config.learns_distributions else None,
        )

    def make_policy(
        self,
        networks: mpo_networks.MPONetworks,
        spec: specs.EnvironmentSpec,
        generator: torch.Generator,
        evaluation: bool = False,
        counter: counting.Counter | None = None,
        actor_index: int = 0,
    ) -> builders.AgentPolicy:
        discrete, first = isinstance(spec.actions, specs.DiscreteArray), self.config.initial_noise_scale
        scale = off_policy.linear(first, 1.0, self.config.noise_scale_steps)
        return acting.ModulePolicy(
            module=self.policy_module(networks),
            choose=self.make_choice(spec, evaluation),
            raw_actions=actions.raw_actions(spec.actions, squash=False),
            generator=generator,
            acceleration=acceleration.Acceleration(self.config.acceleration),
            counter=counter,
            evaluation=evaluation,
            record="nothing" if evaluation else "choice",
            record_state=self.config.stored_state and not evaluation,
            noise_repeat=1 if evaluation else self.config.noise_repeat,
            noise_scale=None if evaluation or discrete or first == 1.0 else scale,
            random_steps=0 if discrete else self.config.random_steps,
            critic_observations=requirements.critic_entries(self.name, spec, self.config),
            device=self.batch_device,
        )

    def policy_module(self, networks: mpo_networks.MPONetworks) -> nn.Module:
        return networks.acting()

    @property
    def policy_variables(self) -> Sequence[str]:
        return ["policy" if self.config.acting_policy == "online" else "target_policy"]

    def make_optimizer(self, name: str, parameters: learners.ParameterGroups) -> torch.optim.Optimizer:
        config = self.config
        return learners.make_optimizer(
            parameters,
            kind=config.optimizer,
            adam_epsilon=config.adam_epsilon,
            sgd_momentum=config.sgd_momentum,
        )

    def extras_spec(self, spec: specs.EnvironmentSpec) -> types.NestedSpec:
        return acting.extras_spec(spec, running_return=self.config.scale_returns)
