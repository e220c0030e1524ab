"""Gradient steps of PPO on minibatches: by autograd for any network, on arrays for the usual ones.

Shapes: n samples of a rollout, m samples of a minibatch, P all parameters' elements.
"""

import abc
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from minerva_acme import learners, losses, networks
from minerva_acme.acceleration import array_actor_critic
from minerva_acme.agents.ppo import config as ppo_config

# Multiply-adds of a forward pass up to which arrays are the quicker way whatever torch's threads: 10 times
# on one thread at 64 samples through 64-64, 3 times at 64 through 256-256, 1.5 at 512 through 256-256. By
# sizes alone, so that a seed gives the same numbers with any number of threads.
_MOST_OF_ARRAYS = 2**24


class Samples(NamedTuple):
    """What the loss needs of a rollout, or of a minibatch of it: tensors, or arrays."""

    observation: Any  # [n, O] normalised
    raw_action: Any  # [n, D], or [n] where discrete
    raw_log_prob: Any  # [n] of the raw action under the behaviour policy
    value: Any  # [n] before the update
    advantage: Any  # [n]
    target: Any  # [n]


class Minimiser(abc.ABC):
    """Makes the gradient steps of one update."""

    @abc.abstractmethod
    def shuffled(self, samples: Samples, order: torch.Tensor, num_minibatches: int) -> list[Samples]:
        """Minibatches of samples of tensors, in a new order [n]."""

    @abc.abstractmethod
    def step(self, minibatch: Samples) -> torch.Tensor:
        """One gradient step; returns `PPOLosses` and the norm of the gradient before clipping, [7].

        Raises:
            NonFinite: the gradient is not finite. The step is not made.
        """

    @abc.abstractmethod
    def finish(self) -> None:
        """Leaves the network and the optimiser as the steps have made them. Nothing may follow."""


def make_minimiser(
    network: networks.ActorCritic, optimizer: torch.optim.Adam, config: ppo_config.PPOConfig
) -> Minimiser:
    """The quickest way that there is for a network as it is now.

    Args:
        network: to train.
        optimizer: of `network.parameters()`, in one group.
        config: hyperparameters.
    """
    num_parameters = sum(parameter.numel() for parameter in network.parameters())
    if config.minibatch_size * num_parameters > _MOST_OF_ARRAYS:
        return TensorMinimiser(network, optimizer, config)
    try:
        return ArrayMinimiser(network, optimizer, config)
    except array_actor_critic.UnknownNetwork:
        return TensorMinimiser(network, optimizer, config)


class TensorMinimiser(Minimiser):
    """Steps by autograd."""

    def __init__(
        self, network: networks.ActorCritic, optimizer: torch.optim.Adam, config: ppo_config.PPOConfig
    ) -> None:
        """Takes over the parts, as `make_minimiser` does."""
        self._network = network
        self._optimizer = optimizer
        self._config = config
        self._parameters = [*network.parameters()]

    def shuffled(self, samples: Samples, order: torch.Tensor, num_minibatches: int) -> list[Samples]:
        columns = [column[order].tensor_split(num_minibatches) for column in samples]
        return [Samples(*parts) for parts in zip(*columns, strict=True)]

    def step(self, minibatch: Samples) -> torch.Tensor:
        config = self._config
        advantage = minibatch.advantage
        if config.normalize_advantages:
            advantage = losses.normalize_advantages(advantage, unbiased=True)
        policy, value = self._network.from_normalized(minibatch.observation)
        loss = losses.ppo_loss(
            log_prob=policy.log_prob(minibatch.raw_action),
            behaviour_log_prob=minibatch.raw_log_prob,
            advantages=advantage,
            targets=minibatch.target,
            value=value,
            behaviour_value=minibatch.value,
            entropy=policy.entropy(),
            clip_ratio=config.clip_ratio,
            clip_value=config.clip_value,
            entropy_coef=config.entropy_coef,
            value_coef=config.value_coef,
        )
        self._optimizer.zero_grad(set_to_none=True)
        loss.total.backward()
        grad_norm = nn.utils.clip_grad_norm_(self._parameters, config.max_grad_norm)
        learners.check_finite("gradients", grad_norm)
        self._optimizer.step()
        return torch.stack([*loss, grad_norm]).detach()

    def finish(self) -> None:
        """They are trained in place."""


class ArrayMinimiser(Minimiser):
    """The same steps in a fraction of the time, for `networks.ArrayActorCritic`.

    Network and optimiser are copied, and are what they were until `finish`.
    """

    def __init__(
        self, network: networks.ActorCritic, optimizer: torch.optim.Adam, config: ppo_config.PPOConfig
    ) -> None:
        """Copies the parts, as `make_minimiser` takes them.

        Raises:
            UnknownNetwork: the network has to be differentiated by autograd.
        """
        self._arrays = array_actor_critic.ArrayActorCritic(network)
        self._adam = _Adam(optimizer, [*network.parameters()])
        self._config = config

    def shuffled(self, samples: Samples, order: torch.Tensor, num_minibatches: int) -> list[Samples]:
        columns = [np.array_split(column[order].numpy(), num_minibatches) for column in samples]
        return [Samples(*parts) for parts in zip(*columns, strict=True)]

    def step(self, minibatch: Samples) -> torch.Tensor:
        config, arrays = self._config, self._arrays
        advantage = minibatch.advantage
        if config.normalize_advantages:
            advantage = losses.normalize_advantage_array(advantage)
        outputs = arrays.forward(minibatch.observation, minibatch.raw_action)
        loss = losses.ppo_gradients(
            log_prob=outputs.log_prob,
            behaviour_log_prob=minibatch.raw_log_prob,
            advantages=advantage,
            targets=minibatch.target,
            value=outputs.value,
            behaviour_value=minibatch.value,
            entropy=outputs.entropy,
            clip_ratio=config.clip_ratio,
            clip_value=config.clip_value,
            entropy_coef=config.entropy_coef,
            value_coef=config.value_coef,
        )
        arrays.backward(loss.log_prob, loss.entropy, loss.value)
        gradient = arrays.gradient
        grad_norm = math.sqrt(gradient.dot(gradient))
        if not math.isfinite(grad_norm):
            raise learners.NonFinite("the gradients are not finite")
        if grad_norm > config.max_grad_norm:
            gradient *= config.max_grad_norm / (grad_norm + _TORCH_EPSILON)
        self._adam.step(arrays.parameters, gradient)
        return torch.tensor([*loss.losses, grad_norm])

    def finish(self) -> None:
        self._adam.finish(self._arrays.parameters)


_TORCH_EPSILON = 1e-6  # in torch's clipping of a norm


class _Adam:
    """`torch.optim.Adam` on one vector; its state is taken from there, and handed back in the end."""

    def __init__(self, optimizer: torch.optim.Adam, parameters: Sequence[nn.Parameter]) -> None:
        self._optimizer = optimizer
        self._parameters = parameters
        self._vectors = array_actor_critic.FlatParameters(parameters)
        states = [optimizer.state[parameter] for parameter in parameters if optimizer.state.get(parameter)]
        if states:
            self._num_steps = int(states[0]["step"])
            self._mean, self._square = (
                self._vectors.flatten([state[key] for state in states]) for key in ("exp_avg", "exp_avg_sq")
            )
        else:
            self._num_steps = 0
            self._mean = np.zeros(sum(parameter.numel() for parameter in parameters), np.float32)
            self._square = np.zeros_like(self._mean)
        (group,) = optimizer.param_groups
        self._learning_rate, self._epsilon = group["lr"], group["eps"]
        self._betas = group["betas"]
        self._scratch = np.empty_like(self._mean)

    def step(self, parameters: np.ndarray, gradient: np.ndarray) -> None:
        """Moves the parameters [P] in place; the gradient [P] is used up."""
        self._num_steps += 1
        beta_1, beta_2 = self._betas
        mean, square, scratch = self._mean, self._square, self._scratch
        np.multiply(gradient, 1.0 - beta_1, scratch)
        mean *= beta_1
        mean += scratch
        gradient *= gradient
        gradient *= 1.0 - beta_2
        square *= beta_2
        square += gradient
        # mean / (1 - beta_1^t) over sqrt(square / (1 - beta_2^t)) + epsilon
        np.sqrt(square, scratch)
        scratch *= 1.0 / math.sqrt(1.0 - beta_2**self._num_steps)
        scratch += self._epsilon
        np.divide(mean, scratch, scratch)
        scratch *= self._learning_rate / (1.0 - beta_1**self._num_steps)
        parameters -= scratch

    @torch.no_grad()
    def finish(self, parameters: np.ndarray) -> None:
        self._vectors.copy_to(self._parameters, parameters)
        if not self._num_steps:
            return
        for parameter in self._parameters:
            state = self._optimizer.state[parameter]
            if not state:
                for key in ("exp_avg", "exp_avg_sq"):
                    state[key] = torch.empty_like(parameter)
            state["step"] = torch.tensor(float(self._num_steps))
        states = [self._optimizer.state[parameter] for parameter in self._parameters]
        self._vectors.copy_to([state["exp_avg"] for state in states], self._mean)
        self._vectors.copy_to([state["exp_avg_sq"] for state in states], self._square)
