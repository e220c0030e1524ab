"""The MPO learner.

Shapes: B batch, T transitions of a sequence, S states in which the policy is improved, N actions in each
(sampled, or all discrete ones), F features of an observation, D action dimensions, an axis that discrete
actions lack; with `objectives`, K of them, J rewards.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import nn

from minerva_acme import (
    acceleration,
    core,
    counting,
    learners,
    loggers,
    losses,
    networks,
    specs,
    types,
)
from minerva_acme.agents.mpo import critics, health, improvement, modes, objectives, optimizers, targets
from minerva_acme.agents.mpo.config import MPOConfig
from minerva_acme.agents.mpo.networks import MPONetworks
from minerva_acme.networks import NormalizedEncoder, RecurrentEncoder, ReturnScale

CriticTargets: TypeAlias = torch.Tensor | networks.ReturnDistribution
"""The return value of a `targets.CriticTarget`, [B, T], or with `objectives` [B, T, J]."""

Observed: TypeAlias = types.NestedTensor | networks.Sequences
"""Observations as an encoder takes them: [B, T + 1, ...], or with a memory the burn-in and states as well."""

CriticLoss: TypeAlias = Callable[[nn.Module, networks.Prediction, CriticTargets, torch.Tensor], torch.Tensor]
"""Computes the critic's loss, [], from the critic, its prediction and target, [B, T], or with `objectives`
[B, T, J], and the mask, [B, T], which is 0 at steps that did not happen."""


class Estimates(NamedTuple):
    """The target networks' estimates of a batch; nothing here carries a gradient."""

    critic_targets: CriticTargets  # [B, T], or [B, T, J]
    states: improvement.States | None  # [S]  those in which the policy is improved; None if it is not
    where: tuple[Any, ...] = ()  # the index of these states in tensors [B, T, ...]
    share: torch.Tensor | float = 1.0  # []  their number over the mean number of the learners side by side


class MPOLearner(learners.ModuleLearner):
    """A learner of maximum a posteriori policy optimisation with an off-policy critic.

    Sources: Abdolmaleki et al. 2018, "Maximum a posteriori policy optimisation" and "Relative
    entropy regularized policy iteration". Each loss trains one group of parameters:

        critic loss              -> critic, and the encoder if `encoder_loss` says so
        temperature, alpha loss  -> duals
        policy losses, KL        -> policy, and the encoder likewise

    Variables: `policy`, `critic`, `target_policy`, `target_critic`, each a dict of arrays. A policy is served
    and saved with its encoder, as `MPONetworks.acting` returns it.
    """

    def __init__(
        self,
        *,
        networks: MPONetworks,
        duals: losses.MPODuals,
        dataset: Iterator[Any],
        critic_target: targets.CriticTarget,
        config: MPOConfig,
        action_spec: specs.BoundedArray,
        counter: counting.Counter,
        logger: loggers.Logger,
        generator: torch.Generator,
        device: torch.device,
        policy_loss: improvement.PolicyLoss = improvement.e_step,
        critic_loss: CriticLoss = critics.critic_loss,
        make_optimizer: learners.OptimizerFactory | None = None,
        num_updates: int | None = None,
        priorities: learners.Priorities | None = None,
        objective_functions: Mapping[str, objectives.ObjectiveFunction] = MappingProxyType({}),
        ranks: learners.Ranks | None = None,
        spec: specs.EnvironmentSpec | None = None,
    ) -> None:
        """Makes the learner.

        Args:
            networks: The networks, trained in place and moved to `device`; the targets start as copies.
            duals: The Lagrange multipliers, moved to `device`.
            dataset: Yields a `Trajectory` with `BehaviourExtras`, as `data` or bare; see
                `learners.checked_samples`.
            critic_target: Computes the critic's regression targets.
            config: The hyperparameters.
            action_spec: The spec of the action: its bounds, or that it is discrete.
            counter: Counts `steps` and `walltime`.
            logger: Receives one row of diagnostics per step.
            generator: Draws the sampled actions; on `device`.
            device: The device to compute on.
            policy_loss: Computes the policy's improvement on a batch.
            critic_loss: Computes the critic's loss.
            make_optimizer: Makes the optimisers of `policy`, `critic` and `duals`, or None for the config's.
            num_updates: The learner steps of the whole run, over which learning rates fall if they do, or
                None if unknown.
            priorities: Weights the critic's loss and receives the new priorities of sequences, or None if the
                table is not sampled by priority.
            objective_functions: The functions that `objectives` of the config may name; the other names are
                rewards.
            ranks: The learners that make the same steps, each from its share of the batch, or None.
            spec: The environment's spec, by which the first batch is checked, or None.

        Raises:
            ValueError: The config asks for bfloat16 and the critic is not a `networks.Critic`.
        """
        self._acceleration = acceleration.Acceleration(config.acceleration)
        self._acceleration.leaves_losses_plain("MPO's losses")
        on_device = [module.to(device) for module in networks]
        self._online = MPONetworks(*map(self._acceleration.network, networks._fields, on_device))
        self._online.critic.eval()  # and so its copy, the target; for training see `_improve_critic`
        self._functions = {
            name: objective_functions[name] for name in config.objectives if name in objective_functions
        }
        self._rewards = [name for name in config.objectives if name not in self._functions]
        make_critic = functools.partial(
            critics.make_critic,
            action_spec=action_spec,
            has_objectives=bool(config.objectives),
            device=device,
        )
        self._critic = make_critic(self._online.critic)
        self._has_batch_norm = critics.has_batch_norm(self._online.critic)
        self._has_memory = isinstance(self._online.encoder, RecurrentEncoder)
        self._for_training = modes.parts_for_training(self._online.encoder, self._online.policy)
        outer: Any = self._online.encoder.encoder if self._has_memory else self._online.encoder
        self._normalizer = outer.normalizer if isinstance(outer, NormalizedEncoder) else None
        learners.warn_of_fixed_statistics({"encoder": self._online.encoder}, updated=outer)
        self._scale = next((m for m in self._online.critic.modules() if isinstance(m, ReturnScale)), None)
        self._duals = duals.to(device)
        self._dataset = learners.checked_samples(
            dataset,
            modules=networks,
            device=device,
            kind=types.Trajectory,
            layout="TrajectoryLayout",
            extras=(
                "raw_action",
                *["log_prob"] * (config.critic_target == "retrace"),
                *["running_return"] * (self._scale is not None),
            ),
            needs_info=priorities is not None,
            spec=spec,
        )
        self._priorities = priorities
        self._critic_target = critic_target
        self._policy_loss = policy_loss
        self._critic_loss = critic_loss
        self._config = config
        self._loss_steps = slice(1 if config.critic_loss_steps == "first" else None)
        self._trained = optimizers.trained_modules(self._online, config)
        self._statistics = learners.Statistics(ranks)
        self._may_lack_statistics = True  # of observations, as before the first batch
        self._health = health.Health()
        self._improved: learners.Metrics = {}
        self._floor = None
        if config.temperature == "solved":
            num_rewards = len(self._rewards) or None
            self._floor = objectives.TemperatureFloor(config.temperature_floor, num_rewards).to(device)
        groups = optimizers.make_groups(
            self._trained, self._duals, config, make_optimizer or optimizers.by_config(config)
        )
        self._target = self._online.copy()  # after the projection to unit norm
        self._target_critic = self._acceleration.target_critic(self._target.critic, config.target_precision)
        self._target_q = make_critic(self._target_critic)
        self._plain_target_q = make_critic(self._target.critic)
        self._decay = learners.LinearDecay(
            groups["policy"].optimizer,
            groups["critic"].optimizer,
            final_share=config.final_learning_rate,
            num_steps=num_updates,
        )
        self._low, self._high = (torch.from_numpy(bound).to(device) for bound in specs.bounds(action_spec))
        modules = {
            "policy": self._online.acting(),
            "critic": self._online.critic,
            "target_policy": self._target.acting(),
            "target_critic": self._target.critic,
            "duals": self._duals,
        }
        if config.critic_observations:  # The policies' encoders lack the critic's part.
            modules |= {"encoder": self._online.encoder, "target_encoder": self._target.encoder}
        if self._floor is not None:
            modules |= {"temperature_floor": self._floor}
        super().__init__(
            modules=modules,
            variables=["policy", "critic", "target_policy", "target_critic"],
            updates=learners.Updates(
                groups,
                modules=[*self._online, self._duals, *([] if self._floor is None else [self._floor])],
                max_skipped_batches=config.max_skipped_batches,
                ranks=ranks,
            ),
            counter=counter,
            logger=logger,
            generator=generator,
        )

    def step(self) -> None:
        """Makes one update of the critic and, if it is due, of E-step, duals and policy, on one batch."""
        info, batch = learners.next_sample(self._dataset, types.Trajectory, "TrajectoryLayout")
        self._decay.set(self.num_steps)
        with self.updates.guarded(self.num_steps, batch) as metrics:
            self._sync_targets()
            batch, observed = self._without_burn_in(batch)
            self._update_statistics(batch)
            improves = (self.num_steps + 1) % self._config.policy_period == 0
            estimates = self._estimate(batch, observed, improves)
            # The steps of the critic's loss.
            steps = learners.at(batch._replace(observation=()), (slice(None), self._loss_steps))
            if self._priorities is not None:
                weights = self._priorities.weights(info, self.num_steps).to(steps.mask.device)
                steps = steps._replace(mask=steps.mask * weights.unsqueeze(1))
            trained, num_pairs = self._trained, steps.mask.numel()
            num_states = 0 if estimates.states is None else len(estimates.states.q_values)
            if self.ranks is not None:
                steps = steps._replace(mask=self.ranks.balance(steps.mask))
                if improves:
                    share = self.ranks.balance(steps.mask.new_ones(num_states))[0]
                    estimates = estimates._replace(share=share)
            # Once for both losses, as many states of a sequence as either needs.
            length = max(steps.mask.shape[1], self._num_improved(batch) if improves else 0)
            features = self._encode(self._online, observed, length)
            acting = features  # if the policy's loss trains the encoder, each M-step encodes again
            if improves and not self._config.trains_encoder("policy"):
                acting = self._encode_to_act(observed, length, features)
            if not improves:  # and the log keeps the numbers of the last improvement
                metrics |= self._improved | self._improve_critic(steps, features, estimates, info)
            else:
                critic, policy = self._acceleration.side_by_side(
                    (
                        lambda: self._improve_critic(steps, features, estimates, info),
                        trained["critic"],
                        num_pairs,
                    ),
                    (
                        lambda: self._improve_policy(batch, observed, features, acting, estimates),
                        trained["policy"],
                        num_states,
                    ),
                    in_order=self.ranks is not None,
                )
                metrics |= critic | policy
        if improves and self._config.policy_period > 1:
            self._improved = {name: each for name, each in metrics.items() if name != "skipped_batches"}
        self._health.check(metrics, self.num_steps)
        self.finish_step(metrics)

    def _sync_targets(self) -> None:
        """Copies the networks to their targets if it is time, or moves the targets part of the way."""
        online, target, config = self._online, self._target, self._config
        for slow, fast, period in (
            (target.policy, online.policy, config.target_policy_update_period),
            (target.encoder, online.encoder, config.target_critic_update_period),
            (target.critic, online.critic, config.target_critic_update_period),
        ):
            # At step 0 the targets are copies already, or come from the run that this one starts from.
            if config.target_rate < 1.0 or (self.num_steps and self.num_steps % period == 0):
                learners.update_target(slow, fast, self.num_steps, rate=config.target_rate)
                optimizers.project_target(slow, fast, config)
                if slow is target.critic:
                    self._target_critic.refresh()

    def _without_burn_in(self, batch: types.Trajectory) -> tuple[types.Trajectory, Observed]:
        """Returns the steps that are learned from, and their observations as the encoder takes them."""
        if not self._has_memory:
            return batch, batch.observation
        burn_in = self._config.burn_in
        observed = networks.sequences(batch, burn_in)
        return learners.at(batch._replace(state=()), (slice(None), slice(burn_in, None))), observed

    def _encode(self, of: MPONetworks, observed: Observed, num_states: int) -> torch.Tensor:
        """Encodes the first states that are learned from, [B, num_states, F]."""
        if isinstance(observed, networks.Sequences):
            observed = observed.first(num_states)
        else:
            observed = learners.at(observed, (slice(None), slice(num_states)))
        features: torch.Tensor = of.encoder(observed)
        return features

    def _encode_to_act(self, observed: Observed, num_states: int, features: torch.Tensor) -> torch.Tensor:
        """Encodes the first states as for acting, [B, num_states, F]; `features` are those for training."""
        if not self._for_training:
            return features
        with modes.as_in_acting(self._for_training):
            return self._encode(self._online, observed, num_states)

    def _update_statistics(self, batch: types.Trajectory) -> None:
        """Updates the running statistics with each sequence's first step, drawn as often as it occurs.

        Targets get new statistics with their next copy. Only the first statistics are copied to them at once:
        without any, observations would not be normalised.
        """
        if self._normalizer is not None:
            firsts = learners.at(batch.observation, (slice(None), 0))
            parts = [*self._normalizer.parts("observation", firsts)]
            self._may_lack_statistics = self._may_lack_statistics and any(
                float(norm.count) < 1.0 for _, norm, _ in parts
            )
            for name, norm, rows in parts:
                self._statistics.update(norm, name, rows)
            if self._may_lack_statistics:
                learners.update_target(self._target.encoder, self._online.encoder, self.num_steps)
        if self._scale is not None:
            self._statistics.update(self._scale, "running_return", batch.extras.running_return[:, :1])

    @torch.no_grad()
    def _estimate(self, batch: types.Trajectory, observed: Observed, improves: bool) -> Estimates:
        """Computes the target networks' estimates, those of the policy's improvement only if it is due.

        Raises:
            NonFinite: The batch or an estimate is not finite.
        """
        features = self._encode(self._target, observed, batch.mask.shape[1] + 1)  # [B, T + 1, F]
        policy = self._target.policy(features)  # [B, T + 1]
        reward = objectives.stacked_rewards(batch.reward, self._rewards) if self._rewards else batch.reward
        encoded, discount_t = (
            batch._replace(observation=features, reward=reward),
            batch.discount * self._config.discount,
        )
        critic_targets = self._critic_target(encoded, discount_t, policy, self._target_q, self.generator)
        if self._floor is not None:
            self._floor.update(reward, batch.mask, self.ranks)
        checked = {  # Values at masked steps are never used.
            "observations": learners.at(batch.observation, (slice(None), slice(1))),
            "later observations": learners.where_unmasked(
                batch.mask, learners.at(batch.observation, (slice(None), slice(1, None)))
            ),
            "rewards": learners.where_unmasked(batch.mask, batch.reward),
            "actions": learners.where_unmasked(batch.mask, batch.action),
            "critic targets": learners.where_unmasked(batch.mask, critic_targets),
        }
        if not improves:
            learners.require_finite(checked)
            return Estimates(critic_targets, None)
        index: tuple[Any, ...] = (slice(None), 0)
        if self._config.policy_loss_steps == "all":
            num_states = int(learners.read(batch.mask.count_nonzero()))
            index = torch.nonzero_static(batch.mask, size=num_states).unbind(dim=-1)
        policy, features = policy.at(index), features[index]
        actions_NSD, log_prior_NS = policy.points(self.generator, self._config.num_samples)
        q_NS = self._target_q(features, actions_NSD)  # with objectives, [N, S, J]
        learners.require_finite({**checked, "Q values": q_NS})
        states = improvement.States(
            policy=policy,
            actions=actions_NSD.transpose(0, 1),
            log_prior=None if log_prior_NS is None else log_prior_NS.T,
            q_values=self._by_objective(batch, index, actions_NSD.transpose(0, 1), q_NS.transpose(0, 1)),
            q_function=lambda actions_NSD: self._plain_target_q(features, actions_NSD),
            low=self._low,
            high=self._high,
            floors=self._floors(),
            combine=None if self.ranks is None else self.ranks.sum,
        )
        return Estimates(critic_targets, states, index)

    def _floors(self) -> torch.Tensor | None:
        """Returns the smallest temperatures, [] or with objectives [K]: none for those that are functions."""
        if self._floor is None:
            return None
        if not self._functions:
            return self._floor()
        floors = dict(zip(self._rewards, self._floor().unbind(), strict=True))
        none = self._floor.largest.new_zeros(())
        return torch.stack([floors.get(name, none) for name in self._config.objectives])

    def _num_improved(self, batch: types.Trajectory) -> int:
        """Returns in how many steps of a sequence, from the first on, the policy is improved."""
        return 1 if self._config.policy_loss_steps == "first" else batch.mask.shape[1]

    def _by_objective(
        self, batch: types.Trajectory, index: Any, actions_SND: torch.Tensor, q_values: torch.Tensor
    ) -> torch.Tensor:
        """Returns the values by all objectives, [S, N, K], from those by rewards, [S, N, J], if there are."""
        if not self._functions:
            return q_values
        observation = learners.at(batch.observation, index)
        values = dict(zip(self._rewards, q_values.unbind(dim=-1), strict=True))
        values |= {name: function(observation, actions_SND) for name, function in self._functions.items()}
        return torch.stack([values[name] for name in self._config.objectives], dim=-1)

    def _improve_critic(
        self, steps: types.Trajectory, features: torch.Tensor, estimates: Estimates, info: Any
    ) -> learners.Metrics:
        features, action = features[:, : steps.mask.shape[1]], steps.action
        if not self._config.trains_encoder("critic"):
            features = features.detach()
        self._online.critic.train()  # Only here: batch norm's statistics are those of replayed pairs.
        if self._has_batch_norm:  # Other results would differ by the rounding of another memory layout.
            prediction = critics.predict_true_pairs(self._critic, steps.mask, features, action)
        else:
            prediction = self._critic.predict(features, action)
        self._online.critic.eval()
        target = learners.at(estimates.critic_targets, (slice(None), self._loss_steps))
        loss = self._critic_loss(self._online.critic, prediction, target, steps.mask)
        if self._priorities is not None:
            errors = critics.td_errors(prediction, target)[:, 0]
            errors = errors.amax(dim=-1) if self._rewards else errors
            errors = errors.where(steps.mask[:, 0] > 0, 0.0)
            self._priorities.update(info, errors.clamp(min=self._config.min_priority))
        metrics = {"loss/q": loss.detach()}
        metrics["grad_norm/critic"] = self.updates.minimise("critic", loss)
        if self._scale is not None:
            metrics["q/scale"] = self._scale.value
        if estimates.states is not None:
            metrics |= self._values_in(estimates.states)
        return metrics

    def _values_in(self, states: improvement.States) -> learners.Metrics:
        """Returns metrics of the target critic's values in the states in which the policy is improved."""
        q_values = {"": states.q_values}
        if self._rewards:
            by_objective = states.q_values.unbind(dim=-1)
            q_values = {
                f"/{name}": values
                for name, values in zip(self._config.objectives, by_objective, strict=True)
                if name in self._rewards
            }
        metrics: learners.Metrics = {}
        for name, values in q_values.items():
            metrics |= {f"q/min{name}": values.min(), f"q/max{name}": values.max()}
        if self._config.target_precision == "bfloat16":
            spreads = [losses.spread_within_states(values) for values in q_values.values()]
            metrics["q/spread_rel"] = torch.stack(spreads).min()
        return metrics

    def _improve_policy(
        self,
        batch: types.Trajectory,
        observed: Observed,
        features: torch.Tensor,
        acting: torch.Tensor,
        estimates: Estimates,
    ) -> learners.Metrics:
        """Computes the improvement, makes one step of the duals and `m_steps` steps of the policy."""
        assert estimates.states is not None
        config, duals, target = self._config, self._duals, estimates.states.policy
        features, acting = features[estimates.where].detach(), acting[estimates.where].detach()
        improved = self._policy_loss(estimates.states, duals, config)
        for m_step in range(config.m_steps):
            if config.trains_encoder("policy"):  # again, since every M-step changes the encoder
                encoded = self._encode(self._online, observed, self._num_improved(batch))
                acting = self._encode_to_act(observed, self._num_improved(batch), encoded)[estimates.where]
                features = encoded[estimates.where]
            online = self._online.policy(features)
            kls = losses.decoupled_kls(
                self._as_it_acts(online, acting), target, config.per_dimension_constraint
            )
            if m_step == 0:
                dual_loss, dual_metrics = improvement.dual_loss(improved.temperature_loss, kls, duals, config)
                self.updates.minimise("duals", estimates.share * dual_loss)
            alphas = [alpha() for alpha in duals.alphas().values()]
            loss = improved.loss(online) + losses.kl_penalty(kls, *alphas)
            grad_norm = self.updates.minimise("policy", estimates.share * loss)

        actions, mean = estimates.states.actions, target.mode()
        metrics = {**improved.metrics, **dual_metrics, **improvement.values_of_alphas(duals)}
        if improved.temperature_loss is not None:
            metrics |= improvement.values_of_temperatures(duals, config)
        metrics |= {f"policy/{name}": value for name, value in target.diagnostics().items()}
        return metrics | {
            "loss/policy": loss.detach(),
            "grad_norm/policy": grad_norm,
            "policy/clipped_actions": ((actions < self._low) | (actions > self._high)).float().mean(),
            "policy/clipped_means": ((mean < self._low) | (mean > self._high)).float().mean(),
        }

    def _as_it_acts(self, online: Any, features: torch.Tensor) -> Any:
        """Returns the trained policy at features, [S, F], as it acts: dropout would have a KL."""
        if not self._for_training:
            return online
        with modes.as_in_acting(self._for_training):
            return self._online.policy(features)

    def save(self) -> core.State:
        numbers = {name: torch.as_tensor(value) for name, value in self._improved.items()}
        return {**super().save(), **({"improved": numbers} if numbers else {})}

    def restore(self, state: core.State) -> None:
        super().restore(state)
        self._improved = state.get("improved", {})
        self._may_lack_statistics = True
        self._target_critic.restored()
