"""A rollout, prepared for learning.

Shapes: T steps of each of E environments, n = T * E samples; with a memory, n samples after the burn-in.
"""

import functools
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import torch
import tree
from torch import nn

from minerva_acme import learners, losses, networks, types
from minerva_acme.agents import actions
from minerva_acme.agents.on_policy import config as on_policy_config

_logger = logging.getLogger(__name__)

_CLIPPED = 1.01  # ratios above are counted as clipped: rounding alone does not get there


class RolloutBatch(NamedTuple):
    """The samples of a rollout, time first; nothing here carries a gradient."""

    observation: types.NestedTensor  # leaves [T * E, ...], normalised as they were when acting
    past: networks.Past | tuple[()]  # a memory's inputs in addition to the observations; () without one
    raw_action: torch.Tensor  # [n, D], or [n] if discrete
    log_det: torch.Tensor  # [n] log |d action / d raw|
    log_prob: torch.Tensor  # [n] of the raw action under the behaviour policy, or the corrected one
    parameters: types.NestedTensor  # the same policy, leaves [n, ...]; () if not recorded
    value: torch.Tensor  # [n] before the update
    advantage: torch.Tensor  # [n]
    target: torch.Tensor  # [n] regression target of the value
    weight: torch.Tensor  # [n] of the sample in the policy's loss: min(1, ratio), or 1 without correction
    metrics: dict[str, torch.Tensor]  # of the correction; {} without one

    def value_metrics(self) -> dict[str, torch.Tensor]:
        """Returns what to log of the value before the update."""
        return {
            "value/explained_variance": losses.explained_variance(self.value, self.target),
            "value/mean": self.value.mean(),
            "value/target_mean": self.target.mean(),
        }


class AdvantageEstimator(Protocol):
    """Computes advantages and value targets; see `minerva_acme.losses.returns`."""

    def __call__(
        self,
        *,
        r_t: torch.Tensor,
        discount_t: torch.Tensor,
        v_t: torch.Tensor,
        v_tp1: torch.Tensor,
        last_t: torch.Tensor,
    ) -> losses.RolloutTargets:
        """Returns the targets; all tensors are [T, E]."""


def advantage_estimator(config: on_policy_config.OnPolicyConfig) -> AdvantageEstimator:
    """Returns the estimator that a config names."""
    if config.advantage_estimator == "gae":
        return functools.partial(losses.gae, lambda_=config.gae_lambda)
    if config.advantage_estimator == "dae":
        return losses.one_step_advantages
    return losses.return_advantages


def correction_lambda(config: on_policy_config.OnPolicyConfig) -> float | None:
    """Returns the lambda for which V-trace corrects a config's estimator; None if actions are never stale."""
    if not config.asynchronous:
        return None
    return {"gae": config.gae_lambda, "dae": 0.0, "returns": 1.0}[config.advantage_estimator]


class RolloutPreparer(learners.Statistics):
    """Turns rollouts into batches, and updates the statistics once for each rollout.

    Rewards are scaled by statistics that include the rollout. The observation statistics, which are the
    network's, include it only after the update: during the update they are the ones under which the actions
    were chosen, so that the first ratio of every update is 1.

    If the actions may be from older weights, V-trace corrects values and advantages, each sample gets the
    weight min(1, ratio), and the policy before the update takes the place of the behaviour policy. The first
    ratio of the update is then 1, too.
    """

    def __init__(
        self,
        *,
        network: networks.ActorCritic,
        raw_actions: actions.RawActions,
        estimator: AdvantageEstimator,
        discount: float,
        burn_in: int = 0,
        correction_lambda: float | None = None,
        scale_rewards: bool,
        device: torch.device,
    ) -> None:
        """Makes the preparer.

        Args:
            network: The network that computes values; its normaliser is updated.
            raw_actions: The raw actions, for the Jacobian of executed actions.
            estimator: Computes advantages and value targets.
            discount: Gamma.
            burn_in: The number of first steps of each rollout that only warm up the network's memory.
            correction_lambda: The lambda of V-trace, which then takes the place of `estimator`; None for
                rollouts of the newest weights.
            scale_rewards: Whether rewards are divided by the running standard deviation of the discounted
                return.
            device: The device of the rollouts.
        """
        super().__init__()
        self._network = network
        self._raw_actions = raw_actions
        self._estimator = estimator
        self._discount = discount
        self._burn_in = burn_in
        self._correction_lambda = correction_lambda
        self._return_norm = networks.RunningNorm(1).to(device) if scale_rewards else None

    def add_modules(self, modules: Mapping[str, nn.Module]) -> Mapping[str, nn.Module]:
        """Returns the statistics of returns, if there are any."""
        return {} if self._return_norm is None else {"return_norm": self._return_norm}

    @torch.no_grad()
    def prepare(self, rollout: types.Rollout) -> RolloutBatch:
        """Computes the values, advantages and targets of a rollout, and flattens it.

        Args:
            rollout: The rollout, [T, E, ...], with `BehaviourExtras` as extras.

        Raises:
            NonFinite: The rollout, a value or an advantage contains infinity or NaN.
        """
        past, extras = self._past(rollout), rollout.extras
        v_t = self._network.value(rollout.observation, past)
        v_tp1 = self._next_values(rollout, v_t)
        # All inputs of the targets, before the first statistics change.
        self.require_finite(
            {
                "observations": rollout.observation,
                "next observations": rollout.next_observation,
                "rewards": rollout.reward,
                "discounts": rollout.discount,
                "values": v_t,
                "values of the next observations": v_tp1,
                "recorded actions": _but_infinity(extras.raw_action),
                "recorded log-probabilities": _but_infinity(extras.log_prob),
                "recorded policies": _but_infinity(extras.parameters),
            }
        )
        inputs = {
            "r_t": self._scaled(rollout),
            "discount_t": rollout.discount * self._discount,
            "v_t": v_t,
            "v_tp1": v_tp1,
            "last_t": rollout.last,
        }
        weight = torch.ones_like(v_t)
        metrics: dict[str, torch.Tensor] = {}
        if self._correction_lambda is None:
            targets = self._estimator(**inputs)
        else:
            policy = self._network.policy(rollout.observation, past)
            log_probs = {
                "log_prob_t": policy.log_prob(extras.raw_action),
                "behaviour_log_prob_t": extras.log_prob,
            }
            self.require_finite(log_probs)
            targets = losses.vtrace(
                **inputs, **log_probs, lambda_=self._correction_lambda, clip_advantage_rho=None
            )
            weight, metrics = _weigh(**log_probs, age=extras.age)
            extras = extras._replace(
                log_prob=log_probs["log_prob_t"], parameters=extras.parameters and policy
            )
        self.require_finite({"advantages": targets.advantage, "value targets": targets.target})
        # Steps that only warm up the memory are left out of every loss.
        v_t, targets, weight, extras = tree.map_structure(
            lambda leaf: leaf[self._burn_in :], (v_t, targets, weight, extras)
        )
        raw_action = extras.raw_action.flatten(0, 1)
        log_prob = extras.log_prob.flatten()
        return RolloutBatch(
            observation=_flat(self._network.normalize(rollout.observation)),
            past=past and past._replace(burn_in=self._burn_in),
            raw_action=raw_action,
            log_det=torch.zeros_like(log_prob) + self._raw_actions.log_det(raw_action),
            log_prob=self._raw_actions.reround(log_prob, raw_action),
            parameters=_flat(extras.parameters),
            value=v_t.flatten(),
            advantage=targets.advantage.flatten(),
            target=targets.target.flatten(),
            weight=weight.flatten(),
            metrics=metrics,
        )

    def after(self, batch: learners.Batch, metrics: Mapping[str, Any], num_steps: int) -> None:
        """Updates the network's normaliser with the observations of a rollout that was learned from."""
        if self._network.normalizer is not None:
            for name, norm, rows in self._network.normalizer.parts("observation", batch.data.observation):
                self.update(norm, name, rows)

    def _scaled(self, rollout: types.Rollout) -> torch.Tensor:
        if self._return_norm is None:
            return rollout.reward
        self.update(self._return_norm, "return_so_far", rollout.return_so_far[..., None])
        return self._return_norm.scale(rollout.reward)

    def _past(self, rollout: types.Rollout) -> networks.Past | tuple[()]:
        """Returns the network's recurrent state before a rollout, and where episodes begin in it."""
        if self._network.memory is None:
            return ()
        return networks.Past(tuple(part[0] for part in rollout.extras.state), rollout.first)

    def _next_values(self, rollout: types.Rollout, v_t: torch.Tensor) -> torch.Tensor:
        """Returns V of each next state: the next row's, except where an episode or the rollout ends."""
        # The last row is an end, as in the estimators. On a CPU ends alone are valued. For their number, the
        # host would wait for a GPU, which values all rows.
        is_end = torch.cat([rollout.last[:-1], torch.ones_like(rollout.last[-1:])]).flatten() > 0
        rows = torch.arange(len(is_end), device=v_t.device)
        if learners.is_read_at_once(v_t):
            rows = rows[is_end]
        v_tp1 = torch.cat([v_t[1:], torch.zeros_like(v_t[:1])]).flatten()
        final = tree.map_structure(lambda leaf: leaf[rows], _flat(rollout.next_observation))
        values = self._network.value(final, self._past_of_ends(rollout, rows))
        v_tp1[rows] = torch.where(is_end[rows], values, v_tp1[rows])
        return v_tp1.view_as(v_t)

    def _past_of_ends(self, rollout: types.Rollout, ends: torch.Tensor) -> networks.Past | tuple[()]:
        """Returns the recurrent state after the steps with these indices, which later rows do not contain."""
        past = self._past(rollout)
        if not past:
            return ()
        state, states = past.state, []
        for observation, start in zip(_steps(rollout.observation), rollout.first, strict=True):
            _, state = self._network.remember(observation, state, start)
            states.append(state)
        state = tuple(torch.cat(parts)[ends] for parts in zip(*states, strict=True))
        return networks.Past(state, torch.zeros(1, len(ends), device=ends.device))


def _weigh(
    *, log_prob_t: torch.Tensor, behaviour_log_prob_t: torch.Tensor, age: types.NestedTensor
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Returns min(1, ratio), [T, E], and how stale the rollout was."""
    ratio = torch.exp(log_prob_t - behaviour_log_prob_t)
    weight = ratio.clamp(max=1.0)
    metrics = {
        "stale/clipped_share": (ratio > _CLIPPED).float().mean(),
        "stale/weight": weight.mean(),
    }
    if isinstance(age, torch.Tensor):
        metrics |= {"stale/share": (age > 0).float().mean(), "stale/learner_steps": age.float().mean()}
    return weight, metrics


def _steps(nest: types.NestedTensor) -> list[types.NestedTensor]:
    """Splits [T, E, ...] into [E, ...] of each step."""
    leaves = zip(*(leaf.unbind() for leaf in tree.flatten(nest)), strict=True)
    return [tree.unflatten_as(nest, step) for step in leaves]


def _but_infinity(nest: types.NestedTensor) -> types.NestedTensor:
    """Replaces infinity by 0: what was recorded of a policy may be infinite and right, as a logit of -inf."""
    return tree.map_structure(lambda leaf: leaf.nan_to_num(nan=torch.nan, posinf=0.0, neginf=0.0), nest)


def _flat(nest: types.NestedTensor) -> types.NestedTensor:
    """Flattens [T, E, ...] to [n, ...]."""
    return tree.map_structure(lambda leaf: leaf.flatten(0, 1), nest)
