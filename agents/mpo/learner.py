"""The MPO learner.

Shapes: B batch, T transitions of a sequence, N sampled actions, O observation size, D action
dimensions.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from minerva_acme import acceleration, core, counting, distributions, learners, loggers, losses, specs, types
from minerva_acme.agents.mpo import optimizers, precision, targets
from minerva_acme.agents.mpo.config import MPOConfig
from minerva_acme.agents.mpo.networks import MPONetworks


class Estimates(NamedTuple):
    """What the target networks say of a batch; nothing here carries a gradient."""

    critic_targets: torch.Tensor  # [B, T]
    policy: distributions.DiagonalGaussian  # [B, D]  at the first state of each sequence
    actions: torch.Tensor  # [B, N, D]  raw samples of it
    q_values: torch.Tensor  # [B, N]  of those actions, clipped to the bounds


class MPOLearner(learners.ModuleLearner):
    """Maximum a posteriori policy optimisation with an off-policy critic.

    Sources: Abdolmaleki et al. 2018, "Maximum a posteriori policy optimisation" and "Relative
    entropy regularized policy iteration". Each loss trains one group of parameters:

        critic loss              -> critic
        temperature, alpha loss  -> duals
        policy losses, KL        -> policy

    Variables: `policy`, `critic`, `target_policy`, `target_critic`, each a dict of arrays.
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
            action_spec: bounds of the action.
            counter: counts `steps` and `walltime`.
            logger: receives a row of diagnostics a step.
            generator: on `device`, draws the sampled actions.
            device: where to compute.

        Raises:
            ValueError: the config asks for bfloat16 and the critic is not a `networks.Critic`.
        """
        self._acceleration = acceleration.Acceleration(config.acceleration)
        self._online = MPONetworks(
            policy=self._acceleration.network("policy", networks.policy.to(device)),
            critic=self._acceleration.network("critic", networks.critic.to(device)),
        )
        self._target = self._online.copy()
        self._target_critic = self._acceleration.target_critic(self._target.critic, config.target_precision)
        self._duals = duals.to(device)
        self._dataset = dataset
        self._critic_target = critic_target
        self._config = config
        self._loss_steps = slice(1 if config.critic_loss_steps == "first" else None)
        self._low, self._high = (torch.from_numpy(bound).to(device) for bound in specs.bounds(action_spec))
        super().__init__(
            modules={
                "policy": self._online.policy,
                "critic": self._online.critic,
                "target_policy": self._target.policy,
                "target_critic": self._target.critic,
                "duals": self._duals,
            },
            variables=["policy", "critic", "target_policy", "target_critic"],
            updates=learners.Updates(
                optimizers.make_groups(self._online, self._duals, config),
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
        with self._updates.whole_or_nothing(self._num_steps, batch) as metrics:
            estimates = self._estimate(batch)
            num_states, num_pairs = len(batch.mask), batch.mask[:, self._loss_steps].numel()
            critic, policy = self._acceleration.side_by_side(
                (lambda: self._improve_critic(batch, estimates), self._online.critic, num_pairs),
                (lambda: self._improve_policy(batch, estimates), self._online.policy, num_states),
            )
            metrics |= critic | policy
        precision.warn_of_small_spread(metrics, self._num_steps)
        self._finish_step(metrics)

    def _sync_targets(self) -> None:
        if self._num_steps % self._config.target_policy_update_period == 0:
            self._updates.keep(self._target.policy)
            self._target.policy.load_state_dict(self._online.policy.state_dict())
        if self._num_steps % self._config.target_critic_update_period == 0:
            self._updates.keep(self._target.critic)
            self._target.critic.load_state_dict(self._online.critic.state_dict())
            self._target_critic.refresh()

    @torch.no_grad()
    def _estimate(self, batch: types.Trajectory) -> Estimates:
        """What the target networks say; raises NonFinite where that, or the batch, is not finite."""
        policy = self._target.policy(batch.observation)  # [B, T + 1, D]
        critic_targets = self._critic_target(
            batch, batch.discount * self._config.discount, policy, self._target_critic, self._generator
        )
        first = distributions.DiagonalGaussian(policy.mean[:, 0], policy.log_std[:, 0])
        actions_NBD = first.sample(self._generator, self._config.num_samples)
        observation = batch.observation[:, 0]
        q_NB = self._target_critic(observation.expand(len(actions_NBD), *observation.shape), actions_NBD)
        happened = batch.mask > 0  # What stands at masked steps is never used.
        learners.require_finite(
            {
                "observations": batch.observation[:, :1],
                "later observations": batch.observation[:, 1:].where(happened[..., None], 0.0),
                "rewards": batch.reward.where(happened, 0.0),
                "actions": batch.action.where(happened[..., None], 0.0),
                "critic targets": critic_targets.where(happened, 0.0),
                "Q values": q_NB,
            }
        )
        return Estimates(critic_targets, first, actions_NBD.transpose(0, 1), q_NB.T)

    def _improve_critic(self, batch: types.Trajectory, estimates: Estimates) -> learners.Metrics:
        t = self._loss_steps
        q_t = self._online.critic(batch.observation[:, :-1][:, t], batch.action[:, t])
        loss = losses.critic_loss(q_t, estimates.critic_targets[:, t], batch.mask[:, t])
        metrics = {
            "loss/q": loss.detach(),
            "q/min": estimates.q_values.min(),
            "q/max": estimates.q_values.max(),
            "grad_norm/critic": self._updates.minimise("critic", loss),
        }
        if self._config.target_precision == "bfloat16":
            metrics["q/spread_rel"] = losses.spread_within_states(estimates.q_values)
        return metrics

    def _improve_policy(self, batch: types.Trajectory, estimates: Estimates) -> learners.Metrics:
        """The E-step, one step of the duals and `m_steps` of the policy."""
        config, duals, target = self._config, self._duals, estimates.policy
        observation = batch.observation[:, 0]
        e_step = losses.e_step(estimates.q_values, duals.temperature(), config.epsilon)
        weights, temperature_loss = e_step.weights, e_step.temperature_loss
        log_n = math.log(config.num_samples)
        metrics = {"policy/entropy_weights": log_n - e_step.kl_to_uniform}
        if duals.penalty_temperature is not None:
            penalties = losses.action_penalty_values(estimates.actions, self._low, self._high)
            penalty = losses.e_step(penalties, duals.penalty_temperature(), config.epsilon_penalty)
            weights = weights + penalty.weights
            temperature_loss = temperature_loss + penalty.temperature_loss
            metrics["kl/penalty_rel"] = penalty.kl_to_uniform / config.epsilon_penalty
            metrics["policy/entropy_penalty_weights"] = log_n - penalty.kl_to_uniform

        for m_step in range(config.m_steps):
            online = self._online.policy(observation)
            kls = losses.decoupled_kls(online, target, config.per_dimension_constraint)
            if m_step == 0:
                metrics |= self._improve_duals(e_step, temperature_loss, kls)
            likelihood = losses.decoupled_policy_losses(weights, estimates.actions, online, target)
            penalty_loss = losses.kl_penalty(kls, duals.alpha_mean(), duals.alpha_stddev())
            loss = likelihood.mean + likelihood.stddev + penalty_loss
            grad_norm = self._updates.minimise("policy", loss)

        raw_action, stddev = batch.extras.raw_action[:, 0], target.log_std.exp()
        return metrics | {
            "loss/policy": loss.detach(),
            "grad_norm/policy": grad_norm,
            "policy/stddev_min": stddev.min(),
            "policy/stddev_max": stddev.max(),
            "policy/clipped_actions": ((raw_action < self._low) | (raw_action > self._high)).float().mean(),
        }

    def _improve_duals(
        self, e_step: losses.EStep, temperature_loss: torch.Tensor, kls: losses.DecoupledKLs
    ) -> learners.Metrics:
        config, duals = self._config, self._duals
        alpha_mean_loss = losses.alpha_loss(duals.alpha_mean(), config.epsilon_mean, kls.mean)
        alpha_stddev_loss = losses.alpha_loss(duals.alpha_stddev(), config.epsilon_stddev, kls.stddev)
        self._updates.minimise("duals", temperature_loss + alpha_mean_loss + alpha_stddev_loss)
        metrics = {
            "loss/temperature": temperature_loss.detach(),
            "loss/alpha_mean": alpha_mean_loss.detach(),
            "loss/alpha_stddev": alpha_stddev_loss.detach(),
            "kl/q_rel": e_step.kl_to_uniform / config.epsilon,
            "kl/mean_rel": kls.mean.detach().mean() / config.epsilon_mean,
            "kl/stddev_rel": kls.stddev.detach().mean() / config.epsilon_stddev,
            "temperature": duals.temperature().detach(),
            "alpha/mean": duals.alpha_mean().detach().mean(),
            "alpha/stddev": duals.alpha_stddev().detach().mean(),
        }
        if duals.penalty_temperature is not None:
            metrics["penalty_temperature"] = duals.penalty_temperature().detach()
        return metrics

    def restore(self, state: core.State) -> None:
        super().restore(state)
        self._target_critic.refresh()
