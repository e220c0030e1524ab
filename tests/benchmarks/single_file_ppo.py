"""PPO in a single file, as usually written: Gymnasium's wrappers, tensors of the rollout, one loop."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

GAMMA, LAMBDA, CLIP = 0.99, 0.95, 0.2


def make(
    environment_id: str,
    num_environments: int,
    rollout_steps: int,
    minibatch_size: int,
    num_epochs: int,
    layer_sizes: Sequence[int],
) -> Callable[[], None]:
    """Returns a function that makes an iteration: a rollout, and the epochs on it.

    Raises:
        ImportError: Gymnasium is not installed.
    """
    import gymnasium as gym

    def make_environment() -> Any:
        environment: Any = gym.wrappers.RecordEpisodeStatistics(gym.make(environment_id))
        environment = gym.wrappers.ClipAction(environment)
        environment = gym.wrappers.NormalizeObservation(environment)
        environment = gym.wrappers.TransformObservation(
            environment, lambda observation: np.clip(observation, -10, 10), environment.observation_space
        )
        environment = gym.wrappers.NormalizeReward(environment, gamma=GAMMA)
        return gym.wrappers.TransformReward(environment, lambda reward: float(np.clip(reward, -10, 10)))

    environments = gym.vector.SyncVectorEnv([make_environment] * num_environments)
    observation_size = environments.single_observation_space.shape[0]
    action_size = environments.single_action_space.shape[0]
    agent = Agent(observation_size, action_size, layer_sizes)
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5)

    length = rollout_steps // num_environments
    observations = torch.zeros(length, num_environments, observation_size)
    actions = torch.zeros(length, num_environments, action_size)
    log_probs, rewards, dones, values = torch.zeros(4, length, num_environments)
    first, _ = environments.reset(seed=0)
    newest = torch.tensor(first, dtype=torch.float32)
    newest_done = torch.zeros(num_environments)

    def iterate() -> None:
        nonlocal newest, newest_done
        for t in range(length):
            observations[t], dones[t] = newest, newest_done
            with torch.no_grad():
                action, log_prob, _, value = agent(newest)
            actions[t], log_probs[t], values[t] = action, log_prob, value
            following, reward, terminated, truncated, _ = environments.step(action.numpy())
            rewards[t] = torch.tensor(reward)
            newest = torch.tensor(following, dtype=torch.float32)
            newest_done = torch.tensor(np.logical_or(terminated, truncated), dtype=torch.float32)

        with torch.no_grad():
            advantages = torch.zeros_like(rewards)
            next_value, next_done = agent.value(newest).squeeze(-1), newest_done
            advantage = torch.zeros(num_environments)
            for t in reversed(range(length)):
                going_on = 1.0 - next_done
                delta = rewards[t] + GAMMA * next_value * going_on - values[t]
                advantage = delta + GAMMA * LAMBDA * going_on * advantage
                advantages[t] = advantage
                next_value, next_done = values[t], dones[t]
            returns = advantages + values

        b_observations, b_actions = observations.flatten(0, 1), actions.flatten(0, 1)
        b_log_probs, b_values = log_probs.flatten(), values.flatten()
        b_advantages, b_returns = advantages.flatten(), returns.flatten()
        order = np.arange(rollout_steps)
        clip_fractions = []
        for _ in range(num_epochs):
            np.random.shuffle(order)
            for start in range(0, rollout_steps, minibatch_size):
                rows = order[start : start + minibatch_size]
                _, log_prob, entropy, value = agent(b_observations[rows], b_actions[rows])
                log_ratio = log_prob - b_log_probs[rows]
                ratio = log_ratio.exp()
                with torch.no_grad():
                    ((ratio - 1) - log_ratio).mean()  # the approximate KL that is logged
                    clip_fractions.append(((ratio - 1.0).abs() > CLIP).float().mean().item())
                chosen = b_advantages[rows]
                chosen = (chosen - chosen.mean()) / (chosen.std() + 1e-8)
                policy_loss = torch.max(
                    -chosen * ratio, -chosen * torch.clamp(ratio, 1 - CLIP, 1 + CLIP)
                ).mean()
                error = (value - b_returns[rows]) ** 2
                clipped = b_values[rows] + torch.clamp(value - b_values[rows], -CLIP, CLIP)
                value_loss = 0.5 * torch.max(error, (clipped - b_returns[rows]) ** 2).mean()
                loss = policy_loss - 0.0 * entropy.mean() + 0.5 * value_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()

    return iterate


class Agent(nn.Module):
    """Two MLPs and a vector of log standard deviations."""

    def __init__(self, observation_size: int, action_size: int, layer_sizes: Sequence[int]) -> None:
        super().__init__()
        self.value = _mlp([observation_size, *layer_sizes, 1], 1.0)
        self.mean = _mlp([observation_size, *layer_sizes, action_size], 0.01)
        self.log_std = nn.Parameter(torch.zeros(1, action_size))

    def forward(self, observation: torch.Tensor, action: torch.Tensor | None = None) -> Any:
        mean = self.mean(observation)
        policy = torch.distributions.Normal(mean, self.log_std.expand_as(mean).exp())
        if action is None:
            action = policy.sample()
        log_prob = policy.log_prob(action).sum(1)
        return action, log_prob, policy.entropy().sum(1), self.value(observation).squeeze(-1)


def _mlp(sizes: Sequence[int], last_gain: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for index in range(len(sizes) - 1):
        is_last = index == len(sizes) - 2
        layer = nn.Linear(sizes[index], sizes[index + 1])
        nn.init.orthogonal_(layer.weight, last_gain if is_last else 2.0**0.5)
        nn.init.zeros_(layer.bias)
        layers += [layer] if is_last else [layer, nn.Tanh()]
    return nn.Sequential(*layers)
