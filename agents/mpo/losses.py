"""MPO's losses, which `learners.LossLearner` minimises on each batch.

Shapes: B batch, T transitions of a sequence, S states in which the policy is improved, N actions in each
(sampled, or all discrete ones), F features of an observation, D action dimensions, of hybrid actions also the
choices, an axis that discrete actions lack; with `objectives`, K of them, J rewards.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import nn

from minerva_acme import learners, losses, networks, types
from minerva_acme.agents import actions
from minerva_acme.agents.mpo import critics, improvement, modes, objectives, targets
from minerva_acme.agents.mpo.config import MPOConfig
from minerva_acme.agents.mpo.networks import MPONetworks

CriticTargets: TypeAlias = torch.Tensor | networks.ReturnDistribution
"""The return value of a `targets.CriticTarget`, [B, T], or with `objectives` [B, T, J]."""

Observed: TypeAlias = types.NestedTensor | networks.Sequences
"""Observations as an encoder takes them: [B, T + 1, ...], or with a memory the burn-in and states as well."""

CriticLoss: TypeAlias = Callable[[nn.Module, networks.Prediction, CriticTargets, torch.Tensor], torch.Tensor]
"""Computes the critic's loss, [], from the critic, its prediction and target, [B, T], or with `objectives`
[B, T, J], and the mask, [B, T], which is 0 at steps that did not happen."""


class MPOModules(NamedTuple):
    """The modules that the losses train, and those that they only read."""

    online: MPONetworks
    target: MPONetworks  # frozen copies in evaluation mode
    duals: losses.MPODuals
    floor: objectives.TemperatureFloor | None  # of temperatures that are solved for


class Estimates(NamedTuple):
    """Values of one batch that are computed once and used by several losses."""

    steps: types.Trajectory  # [B, T]  those that are learned from; the mask has weights of the items
    observed: Observed
    features: torch.Tensor  # [B, T or 1, F]  the online encoder's
    acting: torch.Tensor  # the same as in acting, which differs if the encoder has dropout
    critic_targets: CriticTargets  # [B, T], or [B, T, J], of the critic's loss
    states: improvement.States | None  # [S]  those in which the policy is improved; None if it is not
    where: tuple[Any, ...]  # the index of these states in tensors [B, T, ...]
    num_improved: int  # the number of steps of a sequence, from the first on, that they are among
    improved: improvement.Improvement | None
    share: torch.Tensor | float  # []  the number of states over the mean number of all learners


@dataclasses.dataclass(frozen=True)
class MPOLosses:
    """The losses of MPO with an off-policy critic, each named after what it trains.

        critic   the critic, and the encoder if `encoder_loss` says so
        duals    the multipliers of the policy's KLs, and temperatures that are learned
        policy   the policy, and the encoder likewise; it uses the new multipliers

    Sources: Abdolmaleki et al. 2018, "Maximum a posteriori policy optimisation" and "Relative entropy
    regularized policy iteration".
    """

    config: MPOConfig
    online_q: critics.Critic
    target_q: critics.Critic  # the target critic, by the fastest way
    plain_target_q: critics.Critic  # the target critic itself, which has gradients
    critic_target: targets.CriticTarget
    policy_loss: improvement.PolicyLoss
    critic_loss: CriticLoss
    low: torch.Tensor  # [D]  smallest action; [] if actions are discrete
    high: torch.Tensor  # [D]  largest action, likewise
    raw_actions: actions.RawActions  # converts the actions of the data
    rewards: Sequence[str]  # the objectives that are rewards
    functions: Mapping[str, objectives.ObjectiveFunction]  # the other ones
    for_training: Sequence[nn.Module]  # the parts that compute something else in training than in acting
    ranks: learners.Ranks | None = None

    def estimate(
        self, nets: MPOModules, batch: learners.Batch, generator: torch.Generator
    ) -> learners.Estimated:
        """Computes the critic's targets and, if the policy's loss is due, its improvement: the E-step.

        All of it is the target networks' and has no gradient, but the online features of the observations,
        which the losses share, and the loss of temperatures that are learned.
        """
        steps, observed = self._learned_from(nets, batch.data)
        improves = "policy" in batch.due
        with torch.no_grad():
            features = self._encode(nets.target.encoder, observed, steps.mask.shape[1] + 1)  # [B, T + 1, F]
            policy = nets.target.policy(features)  # [B, T + 1]
            reward = objectives.stacked_rewards(steps.reward, self.rewards) if self.rewards else steps.reward
            encoded = steps._replace(observation=features, reward=reward)
            discount_t = steps.discount * self.config.discount
            critic_targets = self.critic_target(encoded, discount_t, policy, self.target_q, generator)
            if nets.floor is not None:
                nets.floor.update(reward, steps.mask, self.ranks)
            finite = {"critic targets": learners.where_unmasked(steps.mask, critic_targets)}
            states, where = None, ()
            if improves:
                where = self._improved_in(steps.mask)
                states = self._states(nets, steps, features[where], policy.at(where), where, generator)
                finite["Q values"] = states.q_values
        num_states = 0 if states is None else len(states.q_values)
        trained_on = self._trained_on(steps, batch.weights)
        share: torch.Tensor | float = 1.0
        if self.ranks is not None:
            trained_on = trained_on._replace(mask=self.ranks.balance(trained_on.mask))
            share = self.ranks.balance(steps.mask.new_ones(num_states))[0] if improves else 1.0
        # Once for both losses, as many states of a sequence as either needs.
        num_improved = 0
        if improves:
            num_improved = 1 if self.config.policy_loss_steps == "first" else steps.mask.shape[1]
        length = max(trained_on.mask.shape[1], num_improved)
        online_features = self._encode(nets.online.encoder, observed, length)
        acting = online_features
        if improves and not self.config.trains_encoder("policy"):
            acting = self._encode_to_act(nets, observed, length, online_features)
        improved = None if states is None else self.policy_loss(states, nets.duals, self.config)
        return learners.Estimated(
            Estimates(
                trained_on,
                observed,
                online_features,
                acting,
                learners.at(critic_targets, (slice(None), self._loss_steps)),
                states,
                where,
                num_improved,
                improved,
                share,
            ),
            finite,
            num_rows={"critic": trained_on.mask.numel(), "duals": num_states, "policy": num_states},
        )

    def critic(
        self, nets: MPOModules, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the loss by which the critic regresses to its targets; see `targets`."""
        estimates: Estimates = batch.estimates
        steps, critic = estimates.steps, nets.online.critic
        features = estimates.features[:, : steps.mask.shape[1]]
        if not self.config.trains_encoder("critic"):
            features = features.detach()
        critic.train()  # Only here: batch norm sees replayed pairs alone.
        if critics.has_batch_norm(critic):  # Other results would differ by the rounding of another layout.
            prediction = critics.predict_true_pairs(self.online_q, steps.mask, features, steps.action)
        else:
            prediction = self.online_q.predict(features, steps.action)
        critic.eval()
        target = estimates.critic_targets
        loss = self.critic_loss(critic, prediction, target, steps.mask)
        priorities = None
        if isinstance(batch.weights, torch.Tensor):
            errors = critics.td_errors(prediction, target)[:, 0]
            errors = errors.amax(dim=-1) if self.rewards else errors
            errors = errors.where(steps.mask[:, 0] > 0, 0.0)
            priorities = errors.clamp(min=self.config.min_priority)
        metrics: learners.Metrics = {}
        for part in critic.modules():
            if isinstance(part, networks.ReturnScale):
                metrics["q/scale"] = part.value
        if estimates.states is not None:
            metrics |= self._values_in(estimates.states)
        return learners.Loss(loss, metrics, priorities)

    def duals(
        self, nets: MPOModules, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the loss of the multipliers, and of temperatures that are learned; see `improvement`."""
        estimates: Estimates = batch.estimates
        assert estimates.states is not None and estimates.improved is not None
        with torch.no_grad():
            _, acting = self._online_policy(nets, estimates)
            kls = self._kls(acting, estimates)
        loss, metrics = improvement.dual_loss(
            estimates.improved.temperature_loss, kls, nets.duals, self.config
        )
        return learners.Loss(estimates.share * loss, {**estimates.improved.metrics, **metrics})

    def policy(
        self, nets: MPOModules, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the loss of the policy's improvement, with the KLs by the new multipliers: the M-step."""
        estimates: Estimates = batch.estimates
        assert estimates.states is not None and estimates.improved is not None
        online, acting = self._online_policy(nets, estimates)
        kls = self._kls(acting, estimates)
        alphas = [alpha() for alpha in nets.duals.alphas().values()]
        loss = estimates.improved.loss(online) + losses.kl_penalty(kls, *alphas)
        metrics = {"loss/policy": loss.detach(), **improvement.values_of_alphas(nets.duals)}
        if estimates.improved.temperature_loss is not None:
            metrics |= improvement.values_of_temperatures(nets.duals, self.config)
        return learners.Loss(estimates.share * loss, metrics | self._of_target_policy(estimates.states))

    def why_plain(self, online: MPONetworks, name: str) -> str:
        """Returns the reason why a loss of these networks cannot be compiled by itself, or ""."""
        config, has_weights = self.config, any(True for _ in online.encoder.parameters())
        if name == "critic":
            if has_weights and config.trains_encoder("critic"):
                return "it trains an encoder, whose features are part of the estimates"
            return "it sees as many pairs as happened" if critics.has_batch_norm(online.critic) else ""
        if name == "duals":
            return "it is of a few numbers"  # of which KLs of 0, up to rounding, are compared with 0
        if has_weights and config.trains_encoder("policy"):
            return "the encoder is computed again in each step"
        if config.policy_loss_steps == "all":
            return "it is of as many states as happened"
        return ""

    def _learned_from(self, nets: MPOModules, data: types.Trajectory) -> tuple[types.Trajectory, Observed]:
        """Returns the steps that are learned from, and their observations as the encoder takes them."""
        data = data._replace(action=self.raw_actions.join(data.action))
        if not isinstance(nets.online.encoder, networks.RecurrentEncoder):
            return data, data.observation
        burn_in = self.config.burn_in
        observed = networks.sequences(data, burn_in)
        return learners.at(data._replace(state=()), (slice(None), slice(burn_in, None))), observed

    def _trained_on(self, steps: types.Trajectory, weights: torch.Tensor | float) -> types.Trajectory:
        """Returns the steps of the critic's loss, with the items' weights in the mask."""
        steps = learners.at(steps._replace(observation=()), (slice(None), self._loss_steps))
        if isinstance(weights, torch.Tensor):
            steps = steps._replace(mask=steps.mask * weights.unsqueeze(1))
        return steps

    @property
    def _loss_steps(self) -> slice:
        return slice(1 if self.config.critic_loss_steps == "first" else None)

    def _encode(self, encoder: nn.Module, observed: Observed, num_states: int) -> torch.Tensor:
        """Encodes the first states that are learned from, [B, num_states, F]."""
        if isinstance(observed, networks.Sequences):
            observed = observed.first(num_states)
        else:
            observed = learners.at(observed, (slice(None), slice(num_states)))
        features: torch.Tensor = encoder(observed)
        return features

    def _encode_to_act(
        self, nets: MPOModules, observed: Observed, num_states: int, features: torch.Tensor
    ) -> torch.Tensor:
        """Encodes the first states as for acting, [B, num_states, F]; `features` are those for training."""
        if not self.for_training:
            return features
        with modes.as_in_acting(self.for_training):
            return self._encode(nets.online.encoder, observed, num_states)

    def _improved_in(self, mask: torch.Tensor) -> tuple[Any, ...]:
        """Returns the index of the states in which the policy is improved."""
        if self.config.policy_loss_steps == "first":
            return (slice(None), 0)
        num_states = int(learners.read(mask.count_nonzero()))
        return torch.nonzero_static(mask, size=num_states).unbind(dim=-1)

    def _states(
        self,
        nets: MPOModules,
        steps: types.Trajectory,
        features: torch.Tensor,
        policy: Any,
        where: tuple[Any, ...],
        generator: torch.Generator,
    ) -> improvement.States:
        """Draws actions in the states at `where`, of which features and policy are given, and values them."""
        actions_NSD, log_prior_NS = policy.points(generator, self.config.num_samples)
        q_NS = self.target_q(features, actions_NSD)  # with objectives, [N, S, J]
        actions_SND = actions_NSD.transpose(0, 1)
        return improvement.States(
            policy=policy,
            actions=actions_SND,
            log_prior=None if log_prior_NS is None else log_prior_NS.T,
            q_values=self._by_objective(steps, where, actions_SND, q_NS.transpose(0, 1)),
            q_function=lambda actions_NSD: self.plain_target_q(features, actions_NSD),
            low=self.low,
            high=self.high,
            floors=self._floors(nets.floor),
            combine=None if self.ranks is None else self.ranks.sum,
        )

    def _floors(self, floor: objectives.TemperatureFloor | None) -> torch.Tensor | None:
        """Returns the smallest temperatures, [] or with objectives [K]: none for those that are functions."""
        if floor is None:
            return None
        if not self.functions:
            return floor()
        floors = dict(zip(self.rewards, floor().unbind(), strict=True))
        none = floor.largest.new_zeros(())
        return torch.stack([floors.get(name, none) for name in self.config.objectives])

    def _by_objective(
        self, steps: types.Trajectory, where: Any, actions_SND: torch.Tensor, q_values: torch.Tensor
    ) -> torch.Tensor:
        """Returns the values by all objectives, [S, N, K], from those by rewards, [S, N, J], if there are."""
        if not self.functions:
            return q_values
        observation = learners.at(steps.observation, where)
        values = dict(zip(self.rewards, q_values.unbind(dim=-1), strict=True))
        values |= {name: function(observation, actions_SND) for name, function in self.functions.items()}
        return torch.stack([values[name] for name in self.config.objectives], dim=-1)

    def _online_policy(self, nets: MPOModules, estimates: Estimates) -> tuple[Any, Any]:
        """Returns the trained policy, [S], and the same as it acts: dropout would have a KL."""
        features, acting = estimates.features, estimates.acting
        if self.config.trains_encoder("policy"):  # again, since every step of a loss changes the encoder
            first = estimates.observed, estimates.num_improved
            features = self._encode(nets.online.encoder, *first)
            acting = self._encode_to_act(nets, *first, features)
        else:
            features, acting = features.detach(), acting.detach()
        online = nets.online.policy(features[estimates.where])
        if not self.for_training:
            return online, online
        with modes.as_in_acting(self.for_training):
            return online, nets.online.policy(acting[estimates.where])

    def _kls(self, policy: Any, estimates: Estimates) -> Any:
        assert estimates.states is not None
        return losses.decoupled_kls(policy, estimates.states.policy, self.config.per_dimension_constraint)

    def _values_in(self, states: improvement.States) -> learners.Metrics:
        """Returns metrics of the target critic's values in the states in which the policy is improved."""
        q_values = {"": states.q_values}
        if self.rewards:
            by_objective = states.q_values.unbind(dim=-1)
            q_values = {
                f"/{name}": values
                for name, values in zip(self.config.objectives, by_objective, strict=True)
                if name in self.rewards
            }
        metrics: learners.Metrics = {}
        for name, values in q_values.items():
            metrics |= {f"q/min{name}": values.min(), f"q/max{name}": values.max()}
        if self.config.target_precision == "bfloat16":
            spreads = [losses.spread_within_states(values) for values in q_values.values()]
            metrics["q/spread_rel"] = torch.stack(spreads).min()
        return metrics

    def _of_target_policy(self, states: improvement.States) -> learners.Metrics:
        """Returns metrics of the policy that is improved."""
        return {f"policy/{name}": value for name, value in states.policy.diagnostics().items()} | {
            "policy/clipped_actions": self._share_outside(states.actions),
            "policy/clipped_means": self._share_outside(states.policy.mode()),
        }

    def _share_outside(self, actions: torch.Tensor) -> torch.Tensor:
        is_outside = (actions < self.low) | (actions > self.high)
        return is_outside[..., self.raw_actions.clipped].float().mean()
