"""Policies of off-policy agents: Gaussian and categorical."""

import math
from collections.abc import Sequence

import torch
from torch import nn

from minerva_acme.distributions import Categorical, DiagonalGaussian, SquashedGaussian, TanhSquash
from minerva_acme.distributions.limits import MAX_LOG_STD, MAX_STDDEV, MIN_LOG_STD, MIN_STDDEV, STDDEV_RANGE
from minerva_acme.networks.linear import normal_linear, orthogonal_linear
from minerva_acme.networks.torso import LayerNormMLP, TorsoFactory

# Mean and log-std start almost the same in every state: behind a LayerNorm, larger weights would put the mean
# beyond the bounds of many actions, and the KL bound on log-std is so tight that random initial differences
# would last for a long time.
MEAN_HEAD_GAIN = 0.01
LOG_STD_HEAD_GAIN = 0.01
LOGITS_GAIN = 0.01  # the policy starts near uniform in every state


def log_of_initial_stddev(initial_stddev: float) -> float:
    """Returns the log-std with which a policy starts.

    Raises:
        ValueError: It is outside the range to which log-std is clamped, where it would have no gradient.
    """
    if not MIN_STDDEV <= initial_stddev <= MAX_STDDEV:
        raise ValueError(f"`initial_stddev` must be {STDDEV_RANGE}, got {initial_stddev}.")
    return math.log(initial_stddev)


class GaussianPolicy(nn.Module):
    """A torso and two linear heads: mean, with `bounds` through tanh, and log-std clamped to [-7, 2].

        mean = W features, or low + (tanh(W features) + 1) / 2 (high - low)

    W starts normal with standard deviation 0.01 / sqrt(F), for F features, and there is no initial bias: the
    untrained mean is near 0, or with `bounds` near their middle. Where samples are clipped to bounds, all
    actions beyond them are the same, so nothing would bring a mean back from there: give the bounds.

    The standard deviation is from 0.0009 to 7.4. Implementations often clamp to [-20, 2] or not at all;
    here no policy is so sharp that rounding to float32 separates an actor's density from the learner's.
    Beyond the clamp the log-std has no gradient.
    """

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        layer_sizes: Sequence[int],
        *,
        generator: torch.Generator | None = None,
        initial_stddev: float = 0.7,
        torso: TorsoFactory = LayerNormMLP,
        bounds: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> None:
        """Makes the layers.

        Args:
            observation_size: The size of an observation, O.
            action_size: The number of action dimensions, D.
            layer_sizes: The number of units in each layer of the torso.
            generator: The generator for the initial weights; None uses torch's global generator.
            initial_stddev: The standard deviation of the untrained policy, in units of the action;
                the default is the value with which Acme's MPO starts on the control suite.
            torso: The function that makes the torso from `layer_sizes`.
            bounds: The smallest and the largest mean, [D] each, or None for a mean without bounds.

        Raises:
            ValueError: `initial_stddev` is outside the range to which log-std is clamped, or the bounds are
                not two finite vectors of D numbers with low < high.
        """
        super().__init__()
        initial_log_std = log_of_initial_stddev(initial_stddev)
        self.torso = torso(observation_size, layer_sizes, generator=generator)
        self.mean_head = normal_linear(self.torso.output_size, action_size, MEAN_HEAD_GAIN, generator)
        self.mean_squash = None if bounds is None else TanhSquash(*bounds)
        if bounds is not None and len(bounds[0]) != action_size:
            raise ValueError(f"`bounds` must be of {action_size} action dimensions, got {len(bounds[0])}.")
        self.log_std_head = normal_linear(self.torso.output_size, action_size, LOG_STD_HEAD_GAIN, generator)
        nn.init.constant_(self.log_std_head.bias, initial_log_std)

    def forward(self, observation: torch.Tensor) -> DiagonalGaussian:
        """Computes the policy at each observation, [..., O] -> [..., D]."""
        return self.of_features(self.torso(observation))

    def of_features(self, features: torch.Tensor) -> DiagonalGaussian:
        """Computes the policy from the torso's features, [..., F] -> [..., D]."""
        log_std = self.log_std_head(features).clamp(MIN_LOG_STD, MAX_LOG_STD)
        mean = self.mean_head(features)
        return DiagonalGaussian(mean if self.mean_squash is None else self.mean_squash(mean), log_std)


class SquashedPolicy(nn.Module):
    """A Gaussian policy, squashed into the bounds of the action."""

    def __init__(self, policy: nn.Module, squash: TanhSquash) -> None:
        """Takes the policy and the squashing function."""
        super().__init__()
        self.policy = policy
        self.squash = squash

    def forward(self, features: torch.Tensor) -> SquashedGaussian:
        """Computes the distribution of actions, features [..., F] -> [..., D]."""
        return SquashedGaussian(self.policy(features), self.squash)


class CategoricalPolicy(nn.Module):
    """A torso and one linear layer of logits, orthogonal times 0.01: near uniform in any state at first."""

    def __init__(
        self,
        observation_size: int,
        num_actions: int,
        layer_sizes: Sequence[int],
        *,
        generator: torch.Generator | None = None,
        torso: TorsoFactory = LayerNormMLP,
    ) -> None:
        """Makes the layers.

        Args:
            observation_size: The size of an observation, O.
            num_actions: The number of actions, K.
            layer_sizes: The number of units in each layer of the torso.
            generator: The generator for the initial weights; None uses torch's global generator.
            torso: The function that makes the torso from `layer_sizes`.
        """
        super().__init__()
        self.torso = torso(observation_size, layer_sizes, generator=generator)
        self.logits = orthogonal_linear(self.torso.output_size, num_actions, LOGITS_GAIN, generator)

    def forward(self, observation: torch.Tensor) -> Categorical:
        """Computes the policy at each observation, [..., O] -> [..., K]."""
        return Categorical(self.logits(self.torso(observation)))
