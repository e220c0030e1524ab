"""A plain MPO with Retrace, the reference for the learner's speed and numbers.

Each network is called where a formula mentions it, densities and divergences come from
torch.distributions, diagnostics are read with `.item()`, and all layers are torch's own. It wastes no
work: nothing is computed twice within a formula, and gradients are only recorded where they are needed.

Shapes: B batch, T transitions, M and N sampled actions, O observation size, D action dimensions.
"""

import copy
import dataclasses
import itertools
import math
from typing import NamedTuple

import torch
from torch import nn
from torch.distributions import Independent, Normal, kl_divergence


class PlainTrajectory(NamedTuple):
    """A batch of sequences without padding."""

    observation: torch.Tensor  # [B, T + 1, O]
    action: torch.Tensor  # [B, T, D]
    reward: torch.Tensor  # [B, T]
    discount: torch.Tensor  # [B, T]  the environment's own, without gamma
    raw_action: torch.Tensor  # [B, T, D]  before it was clipped
    log_prob: torch.Tensor  # [B, T]  of the raw action, when it was drawn


class Torso(nn.Sequential):
    """Linear, LayerNorm, tanh, then Linear and ELU for each further size."""

    def __init__(self, input_size: int, layer_sizes: tuple[int, ...]) -> None:
        layers: list[nn.Module] = [
            nn.Linear(input_size, layer_sizes[0]),
            nn.LayerNorm(layer_sizes[0]),
            nn.Tanh(),
        ]
        for size_in, size_out in itertools.pairwise(layer_sizes):
            layers += [nn.Linear(size_in, size_out), nn.ELU()]
        super().__init__(*layers)


class Policy(nn.Module):
    """A Gaussian of the raw action."""

    def __init__(self, observation_size: int, action_size: int, layer_sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.torso = Torso(observation_size, layer_sizes)
        self.mean_head = nn.Linear(layer_sizes[-1], action_size)
        self.log_std_head = nn.Linear(layer_sizes[-1], action_size)

    def forward(self, observation: torch.Tensor) -> Normal:
        features = self.torso(observation)
        log_std = self.log_std_head(features).clamp(-7.0, 2.0)
        return Normal(self.mean_head(features), log_std.exp(), validate_args=False)


class Critic(nn.Module):
    """Q of an observation and an action, which is clipped to its bounds."""

    def __init__(
        self, observation_size: int, low: torch.Tensor, high: torch.Tensor, layer_sizes: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.register_buffer("low", low.clone())
        self.register_buffer("high", high.clone())
        self.torso = Torso(observation_size + low.shape[0], layer_sizes)
        self.head = nn.Linear(layer_sizes[-1], 1)

    def forward(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        clipped = torch.clamp(action, self.low, self.high)
        q: torch.Tensor = self.head(self.torso(torch.cat([observation, clipped], dim=-1)))
        return q.squeeze(-1)


class Duals(nn.Module):
    """The temperature and, for each action dimension, two KL multipliers, all before softplus."""

    def __init__(self, action_size: int, temperature: float, alpha_mean: float, alpha_stddev: float) -> None:
        super().__init__()
        self.log_temperature = nn.Parameter(torch.tensor(temperature))
        self.log_alpha_mean = nn.Parameter(torch.full((action_size,), alpha_mean))
        self.log_alpha_stddev = nn.Parameter(torch.full((action_size,), alpha_stddev))


def positive(raw: torch.Tensor) -> torch.Tensor:
    """Returns the multiplier for a parameter."""
    return nn.functional.softplus(raw.clamp(min=-18.0)) + 1e-8


def retrace(
    q_t: torch.Tensor,
    v_tp1: torch.Tensor,
    r_t: torch.Tensor,
    discount_t: torch.Tensor,
    log_prob_t: torch.Tensor,
    behaviour_log_prob_t: torch.Tensor,
    lambda_: float,
) -> torch.Tensor:
    """Returns Retrace targets, [B, T] like all arguments."""
    delta = r_t + discount_t * v_tp1 - q_t
    c = lambda_ * (log_prob_t - behaviour_log_prob_t).exp().clamp(max=1.0)
    g = delta[:, -1]
    target = [q_t[:, -1] + g]
    for t in reversed(range(q_t.shape[1] - 1)):
        g = delta[:, t] + discount_t[:, t] * c[:, t + 1] * g
        target.insert(0, q_t[:, t] + g)
    return torch.stack(target, dim=1)


class MPOTerms(NamedTuple):
    """The terms of MPO's losses."""

    weights: torch.Tensor  # [B, N]
    loss_temperature: torch.Tensor  # []
    loss_mean: torch.Tensor  # []
    loss_stddev: torch.Tensor  # []
    kl_mean: torch.Tensor  # [D]
    kl_stddev: torch.Tensor  # [D]
    loss_kl: torch.Tensor  # []
    loss_alpha_mean: torch.Tensor  # []
    loss_alpha_stddev: torch.Tensor  # []


def mpo_terms(
    q_NB: torch.Tensor,
    actions_NBD: torch.Tensor,
    online: Normal,
    target: Normal,
    duals: Duals,
    *,
    epsilon: float,
    epsilon_mean: float,
    epsilon_stddev: float,
) -> MPOTerms:
    """Computes the E-step and the M-step; policies are [B, D]."""
    temperature = positive(duals.log_temperature)
    weights_NB = torch.softmax(q_NB / temperature, dim=0).detach()
    log_mean_exp_B = torch.logsumexp(q_NB / temperature, dim=0) - math.log(q_NB.shape[0])

    new_mean = Normal(online.mean, target.stddev, validate_args=False)
    new_stddev = Normal(target.mean, online.stddev, validate_args=False)
    kl_mean = kl_divergence(target, new_mean).mean(dim=0)
    kl_stddev = kl_divergence(target, new_stddev).mean(dim=0)
    alpha_mean, alpha_stddev = positive(duals.log_alpha_mean), positive(duals.log_alpha_stddev)
    return MPOTerms(
        weights=weights_NB.T,
        loss_temperature=temperature * (epsilon + log_mean_exp_B.mean()),
        loss_mean=-(weights_NB * Independent(new_mean, 1).log_prob(actions_NBD)).sum(dim=0).mean(),
        loss_stddev=-(weights_NB * Independent(new_stddev, 1).log_prob(actions_NBD)).sum(dim=0).mean(),
        kl_mean=kl_mean,
        kl_stddev=kl_stddev,
        loss_kl=(alpha_mean.detach() * kl_mean + alpha_stddev.detach() * kl_stddev).sum(),
        loss_alpha_mean=(alpha_mean * (epsilon_mean - kl_mean.detach())).sum(),
        loss_alpha_stddev=(alpha_stddev * (epsilon_stddev - kl_stddev.detach())).sum(),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlainConfig:
    """The settings of the update."""

    discount: float
    retrace_lambda: float
    retrace_mc_actions: int
    num_samples: int
    epsilon: float
    epsilon_mean: float
    epsilon_stddev: float
    policy_learning_rate: float
    critic_learning_rate: float
    temperature_learning_rate: float
    alpha_learning_rate: float
    adam_epsilon: float
    max_grad_norm: float
    target_update_period: int


class PlainMPO:
    """The update, with the critic's loss on the first step of a sequence."""

    def __init__(
        self, policy: Policy, critic: Critic, duals: Duals, config: PlainConfig, generator: torch.Generator
    ) -> None:
        self.policy, self.critic, self.duals = policy, critic, duals
        self._config = config
        self._generator = generator
        self._target_policy, self._target_critic = _copy(policy), _copy(critic)
        adam = torch.optim.Adam
        eps = config.adam_epsilon
        self._policy_optimizer = adam(policy.parameters(), lr=config.policy_learning_rate, eps=eps)
        self._critic_optimizer = adam(critic.parameters(), lr=config.critic_learning_rate, eps=eps)
        self._dual_optimizer = adam(
            [
                {"params": [duals.log_temperature], "lr": config.temperature_learning_rate},
                {
                    "params": [duals.log_alpha_mean, duals.log_alpha_stddev],
                    "lr": config.alpha_learning_rate,
                },
            ],
            eps=eps,
        )
        self._num_steps = 0

    def update(self, trajectory: PlainTrajectory) -> dict[str, float]:
        """Makes one learner step; returns its diagnostics."""
        config = self._config
        if self._num_steps % config.target_update_period == 0:
            self._target_policy.load_state_dict(self.policy.state_dict())
            self._target_critic.load_state_dict(self.critic.state_dict())
        self._num_steps += 1
        target_t = self._critic_targets(trajectory)
        _check_finite(target_t)

        q_0 = self.critic(trajectory.observation[:, 0], trajectory.action[:, 0])
        critic_loss = (q_0 - target_t[:, 0]).square().mean()
        critic_norm = self._minimise(critic_loss, self._critic_optimizer, self.critic, config.max_grad_norm)

        observation = trajectory.observation[:, 0]
        with torch.no_grad():
            target = self._target_policy(observation)
            actions_NBD = self._sample(target, config.num_samples)
            q_NB = self._target_critic(observation.expand(config.num_samples, -1, -1), actions_NBD)
        _check_finite(q_NB)
        online = self.policy(observation)
        terms = mpo_terms(
            q_NB,
            actions_NBD,
            online,
            target,
            self.duals,
            epsilon=config.epsilon,
            epsilon_mean=config.epsilon_mean,
            epsilon_stddev=config.epsilon_stddev,
        )
        dual_loss = terms.loss_temperature + terms.loss_alpha_mean + terms.loss_alpha_stddev
        self._minimise(dual_loss, self._dual_optimizer, self.duals, math.inf)
        # The policy's loss uses the multipliers after their step.
        alpha_mean = positive(self.duals.log_alpha_mean).detach()
        alpha_stddev = positive(self.duals.log_alpha_stddev).detach()
        loss_kl = (alpha_mean * terms.kl_mean + alpha_stddev * terms.kl_stddev).sum()
        policy_loss = terms.loss_mean + terms.loss_stddev + loss_kl
        policy_norm = self._minimise(policy_loss, self._policy_optimizer, self.policy, config.max_grad_norm)

        weights = terms.weights
        num_actions = weights.shape[1]
        kl_q = (weights * (weights * num_actions).clamp(min=1e-30).log()).sum(dim=1).mean()
        within = torch.clamp(actions_NBD, self.critic.low, self.critic.high)
        clipped = (actions_NBD != within).float().mean()
        return {
            "loss/critic": critic_loss.item(),
            "loss/policy": policy_loss.item(),
            "loss/temperature": terms.loss_temperature.item(),
            "loss/alpha_mean": terms.loss_alpha_mean.item(),
            "loss/alpha_stddev": terms.loss_alpha_stddev.item(),
            "kl/q_rel": kl_q.item() / config.epsilon,
            "kl/mean_rel": terms.kl_mean.mean().item() / config.epsilon_mean,
            "kl/stddev_rel": terms.kl_stddev.mean().item() / config.epsilon_stddev,
            "temperature": positive(self.duals.log_temperature).item(),
            "alpha/mean": alpha_mean.mean().item(),
            "alpha/stddev": alpha_stddev.mean().item(),
            "q/min": q_NB.min().item(),
            "q/max": q_NB.max().item(),
            "policy/stddev_min": target.stddev.min().item(),
            "policy/stddev_max": target.stddev.max().item(),
            "policy/entropy_weights": -torch.xlogy(weights, weights).sum(dim=1).mean().item(),
            "policy/clipped_actions": clipped.item(),
            "grad_norm/policy": policy_norm,
            "grad_norm/critic": critic_norm,
        }

    @torch.no_grad()
    def _critic_targets(self, trajectory: PlainTrajectory) -> torch.Tensor:
        config = self._config
        following = trajectory.observation[:, 1:]
        actions_M = self._sample(self._target_policy(following), config.retrace_mc_actions)
        observations_M = following.expand(config.retrace_mc_actions, *following.shape)
        policy_t = Independent(self._target_policy(trajectory.observation[:, :-1]), 1)
        return retrace(
            q_t=self._target_critic(trajectory.observation[:, :-1], trajectory.action),
            v_tp1=self._target_critic(observations_M, actions_M).mean(dim=0),
            r_t=trajectory.reward,
            discount_t=trajectory.discount * config.discount,
            log_prob_t=policy_t.log_prob(trajectory.raw_action),
            behaviour_log_prob_t=trajectory.log_prob,
            lambda_=config.retrace_lambda,
        )

    def _sample(self, policy: Normal, num_actions: int) -> torch.Tensor:
        """Returns samples [num_actions, ..., D] from the generator, which `Normal.sample` does not take."""
        noise = torch.randn(
            num_actions, *policy.mean.shape, generator=self._generator, device=policy.mean.device
        )
        return policy.mean + policy.stddev * noise

    def _minimise(
        self, loss: torch.Tensor, optimizer: torch.optim.Optimizer, module: nn.Module, max_norm: float
    ) -> float:
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(module.parameters(), max_norm)
        _check_finite(norm)
        optimizer.step()
        return norm.item()


def _copy(module: nn.Module) -> nn.Module:
    return copy.deepcopy(module).requires_grad_(False)


def _check_finite(tensor: torch.Tensor) -> None:
    if not torch.isfinite(tensor).all():
        raise FloatingPointError("not finite")
