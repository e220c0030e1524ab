"""The MPO learner.

Shapes: B batch, T transitions of a sequence, N actions (sampled, or all that there are), F features of an
observation, D action dimensions, an axis that discrete actions lack.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from minerva_acme import acceleration, core, counting, distributions, learners, loggers, losses, specs, types
from minerva_acme.agents.mpo import optimizers, precision, targets
from minerva_acme.agents.mpo.config import MPOConfig
from minerva_acme.agents.mpo.networks import MPONetworks, action_values


class Estimates(NamedTuple):
    """What the target networks say of a batch; nothing here carries a gradient."""

    critic_targets: torch.Tensor  # [B, T]
    policy: distributions.Distribution  # [B]  at the first state of each sequence
    actions: torch.Tensor  # [B, N, D]  raw actions of it
    log_prior: torch.Tensor | None  # [B, N]  their log-probabilities; None where they were sampled
    q_values: torch.Tensor  # [B, N]  of those actions, clipped to the bounds


class MPOLearner(learners.ModuleLearner):
    """Maximum a posteriori policy optimisation with an off-policy critic.

    Sources: Abdolmaleki et al. 2018, "Maximum a posteriori policy optimisation" and "Relative
    entropy regularized policy iteration". Each loss trains one group of parameters:

        critic loss              -> critic, and the encoder if `encoder_loss` says so
        temperature, alpha loss  -> duals
        policy losses, KL        -> policy, and the encoder likewise

    Variables: `policy`, `critic`, `target_policy`, `target_critic`, each a dict of arrays. A policy is served
    and saved with the encoder that it sees through, as `MPONetworks.acting` gives it.
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
    ) -> None:
        """Makes the learner.

        Args:
            networks: trained in place, moved to `device`; the targets start as copies of them.
            duals: the Lagrange multipliers, moved to `device`.
            dataset: yields samples whose `data` is a `Trajectory` on `device` with `BehaviourExtras`.
            critic_target: computes what the critic regresses to.
            config: hyperparameters.
            action_spec: of the action: its bounds, or that it is discrete.
            counter: counts `steps` and `walltime`.
            logger: receives a row of diagnostics a step.
            generator: on `device`, draws the sampled actions.
            device: where to compute.

        Raises:
            ValueError: the config asks for bfloat16 and the critic is not a `networks.Critic`.
        """
        self._acceleration = acceleration.Acceleration(config.acceleration)
        self._online = MPONetworks(
            **{
                name: self._acceleration.network(name, module.to(device))
                for name, module in networks._asdict().items()
            }
        )
        self._target = self._online.copy()
        self._target_critic = self._acceleration.target_critic(self._target.critic, config.target_precision)
        self._q = action_values(self._online.critic, action_spec)
        self._target_q = action_values(self._target_critic, action_spec)
        self._duals = duals.to(device)
        self._dataset = dataset
        self._critic_target = critic_target
        self._config = config
        self._loss_steps = slice(1 if config.critic_loss_steps == "first" else None)
        self._trained = optimizers.trained_modules(self._online, config)
        self._low, self._high = (torch.from_numpy(bound).to(device) for bound in specs.bounds(action_spec))
        super().__init__(
            modules={
                "policy": self._online.acting(),
                "critic": self._online.critic,
                "target_policy": self._target.acting(),
                "target_critic": self._target.critic,
                "duals": self._duals,
            },
            variables=["policy", "critic", "target_policy", "target_critic"],
            updates=learners.Updates(
                optimizers.make_groups(self._trained, self._duals, config),
                modules=[*self._online, self._duals],
                max_skipped_batches=config.max_skipped_batches,
            ),
            counter=counter,
            logger=logger,
            generator=generator,
        )

    def step(self) -> None:
        """One round of critic, E-step, duals and policy on one batch."""
        batch = learners.next_batch(self._dataset, types.Trajectory, "TrajectoryLayout")
        self._sync_targets()
        with self._updates.whole_or_nothing(self._num_steps) as metrics:
            estimates = self._estimate(batch)
            steps = self._steps_to_learn_from(batch)
            features = self._online.encoder(steps.observation)  # [B, T, F], one encoding for both losses
            critic, policy = self._acceleration.side_by_side(
                (
                    lambda: self._improve_critic(steps, features, estimates),
                    self._trained["critic"],
                    steps.mask.numel(),
                ),
                (
                    lambda: self._improve_policy(batch, features[:, 0].detach(), estimates),
                    self._trained["policy"],
                    len(batch.mask),
                ),
            )
            metrics |= critic | policy
        precision.warn_of_small_spread(metrics, self._num_steps)
        self._finish_step(metrics)

    def _sync_targets(self) -> None:
        if self._num_steps % self._config.target_policy_update_period == 0:
            self._target.policy.load_state_dict(self._online.policy.state_dict())
        if self._num_steps % self._config.target_critic_update_period == 0:
            self._target.critic.load_state_dict(self._online.critic.state_dict())
            self._target.encoder.load_state_dict(self._online.encoder.state_dict())
            self._target_critic.refresh()

    @torch.no_grad()
    def _estimate(self, batch: types.Trajectory) -> Estimates:
        """What the target networks say; raises NonFinite where that, or the batch, is not finite."""
        features = self._target.encoder(batch.observation)  # [B, T + 1, F]
        policy = self._target.policy(features)
        critic_targets = self._critic_target(
            batch._replace(observation=features),
            batch.discount * self._config.discount,
            policy,
            self._target_q,
            self._generator,
        )
        first = policy.at((slice(None), 0))
        points = first.points(self._generator, self._config.num_samples)
        q_NB = self._target_q(features[:, 0], points.actions)
        learners.require_finite(  # What stands at masked steps is never used.
            {
                "rewards": learners.where_unmasked(batch.mask, batch.reward),
                "actions": learners.where_unmasked(batch.mask, batch.action),
                "critic targets": learners.where_unmasked(batch.mask, critic_targets),
                "Q values": q_NB,
            }
        )
        log_prior = None if points.log_weights is None else points.log_weights.T
        return Estimates(critic_targets, first, points.actions.transpose(0, 1), log_prior, q_NB.T)

    def _steps_to_learn_from(self, batch: types.Trajectory) -> types.Trajectory:
        """The steps of the critic's loss, [B, T], with the observations that they begin at."""
        begins = batch._replace(observation=learners.at(batch.observation, (slice(None), slice(-1))))
        return learners.at(begins, (slice(None), self._loss_steps))

    def _improve_critic(
        self, steps: types.Trajectory, features: torch.Tensor, estimates: Estimates
    ) -> learners.Metrics:
        q_t = self._q(features if self._encoder_learns("critic") else features.detach(), steps.action)
        loss = losses.critic_loss(q_t, estimates.critic_targets[:, self._loss_steps], steps.mask)
        metrics = {
            "loss/q": loss.detach(),
            "q/min": estimates.q_values.min(),
            "q/max": estimates.q_values.max(),
            "grad_norm/critic": self._updates.minimise("critic", loss),
        }
        if self._config.target_precision == "bfloat16":
            metrics["q/spread_rel"] = losses.spread_within_states(estimates.q_values)
        return metrics

    def _improve_policy(
        self, batch: types.Trajectory, features: torch.Tensor, estimates: Estimates
    ) -> learners.Metrics:
        """The E-step, one step of the duals and `m_steps` of the policy."""
        config, duals, target = self._config, self._duals, estimates.policy
        e_step = losses.e_step(estimates.q_values, duals.temperature(), config.epsilon, estimates.log_prior)
        weights, temperature_loss = e_step.weights, e_step.temperature_loss
        metrics = {"policy/entropy_weights": e_step.entropy}
        if duals.penalty_temperature is not None:
            penalties = losses.action_penalty_values(estimates.actions, self._low, self._high)
            penalty = losses.e_step(penalties, duals.penalty_temperature(), config.epsilon_penalty)
            weights = weights + penalty.weights
            temperature_loss = temperature_loss + penalty.temperature_loss
            metrics["kl/penalty_rel"] = penalty.kl_to_prior / config.epsilon_penalty
            metrics["policy/entropy_penalty_weights"] = penalty.entropy

        for m_step in range(config.m_steps):
            if self._encoder_learns("policy"):  # anew, as each M-step changes it
                features = self._online.encoder(learners.at(batch.observation, (slice(None), 0)))
            online = self._online.policy(features)
            kls = losses.decoupled_kls(online, target, config.per_dimension_constraint)
            if m_step == 0:
                metrics |= self._improve_duals(e_step, temperature_loss, kls)
            likelihood = losses.decoupled_policy_losses(weights, estimates.actions, online, target)
            alphas = [alpha() for alpha in duals.alphas().values()]
            loss = sum(likelihood) + losses.kl_penalty(kls, *alphas)
            grad_norm = self._updates.minimise("policy", loss)

        raw_action = batch.extras.raw_action[:, 0]
        metrics |= {f"policy/{name}": value for name, value in target.diagnostics().items()}
        return metrics | {
            "loss/policy": loss.detach(),
            "grad_norm/policy": grad_norm,
            "policy/clipped_actions": ((raw_action < self._low) | (raw_action > self._high)).float().mean(),
        }

    def _improve_duals(
        self, e_step: losses.EStep, temperature_loss: torch.Tensor, kls: Any
    ) -> learners.Metrics:
        config, duals = self._config, self._duals
        epsilons = {"mean": config.epsilon_mean, "stddev": config.epsilon_stddev}
        metrics = {
            "loss/temperature": temperature_loss.detach(),
            "kl/q_rel": e_step.kl_to_prior / config.epsilon,
        }
        loss = temperature_loss
        for name, alpha in duals.alphas().items():
            kl, epsilon = getattr(kls, name), epsilons[name]
            alpha_loss = losses.alpha_loss(alpha(), epsilon, kl)
            loss = loss + alpha_loss
            metrics[f"loss/alpha_{name}"] = alpha_loss.detach()
            metrics[f"kl/{name}_rel"] = kl.detach().mean() / epsilon
        self._updates.minimise("duals", loss)
        metrics |= {f"alpha/{name}": alpha().detach().mean() for name, alpha in duals.alphas().items()}
        metrics["temperature"] = duals.temperature().detach()
        if duals.penalty_temperature is not None:
            metrics["penalty_temperature"] = duals.penalty_temperature().detach()
        return metrics

    def _encoder_learns(self, loss: str) -> bool:
        return self._config.encoder_loss in (loss, "both")

    def restore(self, state: core.State) -> None:
        super().restore(state)
        self._target_critic.refresh()
