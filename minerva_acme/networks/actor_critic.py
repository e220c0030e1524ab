"""Policy and value of one observation, the network of the on-policy agents.

Shapes: D action dimensions, or choices; K discrete actions; F features of an encoder, a memory or a
torso; `...` any leading axes, such as [n] or [T, E], the same of every leaf of an observation.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import nn

from minerva_acme import types
from minerva_acme.distributions import Categorical, DiagonalGaussian, MultiCategorical
from minerva_acme.distributions.limits import MAX_LOG_STD, MIN_LOG_STD
from minerva_acme.networks.encoders import Encoder, IdentityEncoder
from minerva_acme.networks.linear import orthogonal_linear
from minerva_acme.networks.memory import Memory, MemoryState, Past
from minerva_acme.networks.normalizer import NestNorm, RunningNorm
from minerva_acme.networks.policy import LOG_STD_HEAD_GAIN, log_of_initial_stddev
from minerva_acme.networks.torso import LayerNormMLP, TanhMLP

_VALUE_GAIN = 1.0
EncoderLoss: TypeAlias = Literal["both", "policy", "value"]
Policy: TypeAlias = DiagonalGaussian | Categorical | MultiCategorical
_TORSOS: dict[str, type[LayerNormMLP] | type[TanhMLP]] = {"layer_norm": LayerNormMLP, "tanh": TanhMLP}


class PolicyAndValue(NamedTuple):
    """What an `ActorCritic` says of each observation."""

    policy: Policy  # of [..., D], [..., K] or [..., D, K]
    value: torch.Tensor  # [...]


class ActorCritic(nn.Module):
    """Normaliser, encoder, memory if any, torsos and heads of a policy and a value.

    Any modules do that have these signatures:

        encoder(normalised observation, a nest of [..., *leaf]) -> features [..., F]
        memory                                                      see `Memory`
        policy_torso, value_torso(features [..., F]) -> features [..., F]
        policy_head(features [..., F]) -> DiagonalGaussian of [..., D], Categorical of [..., K] or
            MultiCategorical of [..., D, K]
        value_head(features [..., F]) -> [..., 1]

    With a memory observations are those of T steps of E environments, their leading axes [T, E] or, time
    first, [n = T * E], and `past` says what the memory held before them. The steps that only warm it up have
    no output.
    """

    def __init__(
        self,
        *,
        normalizer: RunningNorm | NestNorm | None,
        encoder: nn.Module,
        encoder_loss: EncoderLoss,
        memory: Memory | None = None,
        policy_torso: nn.Module,
        value_torso: nn.Module | None,
        policy_head: nn.Module,
        value_head: nn.Module,
    ) -> None:
        """Makes the network of its parts.

        Args:
            normalizer: of observations; None leaves them as they are.
            encoder: of observations, one for policy and value; `IdentityEncoder` for a vector.
            encoder_loss: whether the losses of policy and value both train encoder and memory, or one alone.
            memory: of the episode, between encoder and torsos; None: the observation alone counts.
            policy_torso: the policy's features.
            value_torso: the value's; None: policy and value share the features of `policy_torso`.
            policy_head: features to distribution.
            value_head: features to value.
        """
        super().__init__()
        self.normalizer = normalizer
        self.encoder = encoder
        self._encoder_loss = encoder_loss
        self.memory = memory
        self.policy_torso = policy_torso
        self.value_torso = value_torso
        self.policy_head = policy_head
        self.value_head = value_head

    def forward(self, observation: types.NestedTensor, past: Past | tuple[()] = ()) -> PolicyAndValue:
        """Policy and value at each observation; shared features are computed once."""
        return self.from_normalized(self.normalize(observation), past)

    def policy(self, observation: types.NestedTensor, past: Past | tuple[()] = ()) -> Policy:
        """The policy alone at each observation."""
        features = self.policy_torso(self._encode(self.normalize(observation), past))
        distribution: Policy = self.policy_head(features)
        return distribution

    def value(self, observation: types.NestedTensor, past: Past | tuple[()] = ()) -> torch.Tensor:
        """The value alone at each observation, [...]."""
        torso = self.policy_torso if self.value_torso is None else self.value_torso
        value: torch.Tensor = self.value_head(torso(self._encode(self.normalize(observation), past)))
        return value.squeeze(-1)

    def normalize(self, observation: types.NestedTensor) -> types.NestedTensor:
        """The observation as the encoder sees it, in the same structure and shapes."""
        return observation if self.normalizer is None else self.normalizer(observation)

    def from_normalized(self, observation: types.NestedTensor, past: Past | tuple[()] = ()) -> PolicyAndValue:
        """`forward` of what `normalize` gave, for a learner that normalises a rollout once for all epochs."""
        encoded = self._encode(observation, past)
        # Detached from the encoder where the other's loss alone trains it.
        features = self.policy_torso(encoded.detach() if self._encoder_loss == "value" else encoded)
        value_features = features
        if self.value_torso is not None or self._encoder_loss != "both":
            torso = self.policy_torso if self.value_torso is None else self.value_torso
            value_features = torso(encoded.detach() if self._encoder_loss == "policy" else encoded)
        return PolicyAndValue(self.policy_head(features), self.value_head(value_features).squeeze(-1))

    def remember(
        self, observation: types.NestedTensor, state: MemoryState, start: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, MemoryState]:
        """One step of the memory.

        Args:
            observation: leaves [E, ...].
            state: of the memory before it, [E, ...] each.
            start: [E], 1 where an episode begins with it; None: nowhere.

        Returns:
            The features that `without_memory` takes, [E, F], and the state after the step.
        """
        assert self.memory is not None
        features = self.encoder(self.normalize(observation))[None]
        if start is None:
            remembered, state = self.memory.unroll(features, state)
        else:
            remembered, state = self.memory(features, state, start[None])
        return remembered[0], state

    def without_memory(self) -> "ActorCritic":
        """The same torsos and heads, as a network of the memory's features."""
        assert self.memory is not None
        return ActorCritic(
            normalizer=None,
            encoder=IdentityEncoder(self.memory.output_size),
            encoder_loss=self._encoder_loss,
            policy_torso=self.policy_torso,
            value_torso=self.value_torso,
            policy_head=self.policy_head,
            value_head=self.value_head,
        )

    def _encode(self, observation: types.NestedTensor, past: Past | tuple[()]) -> torch.Tensor:
        """What the torsos are given, of the steps behind those of the burn-in."""
        features: torch.Tensor = self.encoder(observation)
        if self.memory is None:
            return features
        if not past:
            raise ValueError(
                "`past` must say what the memory holds and where episodes begin, got none. Give a `Past`, or "
                "make the network without `memory`."
            )
        state, start, burn_in = past
        steps = features.reshape(*start.shape, -1)
        if burn_in:
            with torch.no_grad():
                _, state = self.memory(steps[:burn_in], state, start[:burn_in])
        remembered, _ = self.memory(steps[burn_in:], state, start[burn_in:])
        return remembered if features.ndim == steps.ndim else remembered.flatten(0, 1)


def policy_of(module: nn.Module) -> Callable[..., Any]:
    """What a module acts by: the policy of an `ActorCritic`, and any other module itself."""
    return module.policy if isinstance(module, ActorCritic) else module


def memory_of(module: nn.Module) -> Memory | None:
    """The memory of a module that remembers the episode; None where it has none."""
    memory = getattr(module, "memory", None)
    return memory if isinstance(memory, Memory) else None


class GaussianHead(nn.Module):
    """Mean, and log-std clamped to [-7, 2], from the features or as a parameter of its own.

    The clamp is that of `GaussianPolicy`, for the same reason.
    """

    log_std: nn.Parameter | None  # [D]
    log_std_head: nn.Module | None

    def __init__(
        self,
        features: int,
        action_size: int,
        *,
        state_dependent_std: bool,
        initial_stddev: float,
        gain: float,
        generator: torch.Generator | None = None,
    ) -> None:
        """Makes the layers.

        Args:
            features: F.
            action_size: D.
            state_dependent_std: whether the log-std is a second linear layer of the features or one
                parameter [D] for all states.
            initial_stddev: standard deviation of the untrained policy, in units of the raw action.
            gain: of the mean's orthogonal weights; 0.01 starts near zero in every state.
            generator: draws the initial weights; None is torch's global one.

        Raises:
            ValueError: a size is below 1, or `initial_stddev` is beyond what log-std is clamped to.
        """
        super().__init__()
        _check_at_least_one("features", features)
        _check_at_least_one("action_size", action_size)
        initial_log_std = log_of_initial_stddev(initial_stddev)
        self.mean_head = orthogonal_linear(features, action_size, gain, generator)
        if state_dependent_std:
            self.log_std = None
            self.log_std_head = orthogonal_linear(features, action_size, LOG_STD_HEAD_GAIN, generator)
            nn.init.constant_(self.log_std_head.bias, initial_log_std)
        else:
            self.log_std = nn.Parameter(torch.full((action_size,), initial_log_std))
            self.log_std_head = None

    def forward(self, features: torch.Tensor) -> DiagonalGaussian:
        """The Gaussian at each row of features, [..., F] -> [..., D]."""
        mean = self.mean_head(features)
        if self.log_std_head is not None:
            return DiagonalGaussian(mean, self.log_std_head(features).clamp(MIN_LOG_STD, MAX_LOG_STD))
        assert self.log_std is not None
        return DiagonalGaussian(mean, self.log_std.clamp(MIN_LOG_STD, MAX_LOG_STD).expand_as(mean))


class CategoricalHead(nn.Module):
    """One linear layer of logits."""

    def __init__(
        self, features: int, num_actions: int, *, gain: float, generator: torch.Generator | None = None
    ) -> None:
        """Makes the layer.

        Args:
            features: F.
            num_actions: K.
            gain: of the orthogonal weights; 0.01 starts near uniform in every state.
            generator: draws the initial weights; None is torch's global one.

        Raises:
            ValueError: a size is below 1.
        """
        super().__init__()
        _check_at_least_one("features", features)
        _check_at_least_one("num_actions", num_actions)
        self.logits = orthogonal_linear(features, num_actions, gain, generator)

    def forward(self, features: torch.Tensor) -> Categorical:
        """The distribution at each row of features, [..., F] -> [..., K]."""
        return Categorical(self.logits(features))


class MultiCategoricalHead(nn.Module):
    """One linear layer of the logits of several choices, which may have different numbers of values."""

    is_value: torch.Tensor  # [D, K]

    def __init__(
        self,
        features: int,
        num_values: Sequence[int],
        *,
        gain: float,
        generator: torch.Generator | None = None,
    ) -> None:
        """Makes the layer.

        Args:
            features: F.
            num_values: of each of the D choices; K is the largest.
            gain: of the orthogonal weights; 0.01 starts near uniform in every state.
            generator: draws the initial weights; None is torch's global one.

        Raises:
            ValueError: there is no choice, or a size is below 1.
        """
        super().__init__()
        _check_at_least_one("features", features)
        _check_at_least_one("the number of choices", len(num_values))
        for num in num_values:
            _check_at_least_one("num_values", num)
        is_value = torch.arange(max(num_values)) < torch.tensor([*num_values])[:, None]
        self.register_buffer("is_value", is_value, persistent=False)
        self.logits = orthogonal_linear(features, is_value.numel(), gain, generator)

    def forward(self, features: torch.Tensor) -> MultiCategorical:
        """The distribution at each row of features, [..., F] -> [..., D, K]."""
        logits = self.logits(features).unflatten(-1, self.is_value.shape)
        return MultiCategorical(Categorical(logits).masked(self.is_value).logits)


def make_actor_critic(
    *,
    normalizer: RunningNorm | NestNorm | None,
    encoder: Encoder,
    encoder_loss: EncoderLoss,
    memory: Memory | None = None,
    num_actions: int | Sequence[int] | None = None,
    action_size: int | None = None,
    layer_sizes: Sequence[int],
    value_layer_sizes: Sequence[int],
    torso: Literal["tanh", "layer_norm"],
    shared_torso: bool,
    state_dependent_std: bool,
    initial_stddev: float,
    policy_gain: float,
    generator: torch.Generator | None,
) -> ActorCritic:
    """Makes an `ActorCritic` with MLPs behind an encoder.

    Args:
        normalizer: of observations, see `make_normalizer`.
        encoder: of observations, see `make_encoder`.
        encoder_loss: whether the losses of policy and value both train encoder and memory, or one alone.
        memory: of the episode, which takes the encoder's features, see `make_memory`; None: none.
        num_actions: K, where actions are discrete; those of each choice where there are several.
        action_size: D, where they are continuous; exactly one of the two is given.
        layer_sizes: units of each layer of the policy's torso.
        value_layer_sizes: of the value's.
        torso: `tanh` for `TanhMLP`, `layer_norm` for `LayerNormMLP`.
        shared_torso: whether policy and value have one torso, of one size.
        state_dependent_std: see `GaussianHead`; of no effect on discrete actions.
        initial_stddev: see `GaussianHead`; of no effect on discrete actions.
        policy_gain: gain of the policy head's weights.
        generator: draws the initial weights; None is torch's global one.

    Raises:
        ValueError: both or neither of `num_actions` and `action_size` are given, a torso is unknown
            or has no layer, or a shared one has two sizes.
    """
    if (num_actions is None) == (action_size is None):
        raise ValueError(
            f"Exactly one of `num_actions` and `action_size` must be given, got {num_actions} and "
            f"{action_size}. Discrete actions have a number, continuous ones a size."
        )
    if torso not in _TORSOS:
        raise ValueError(f"`torso` must be one of {', '.join(sorted(_TORSOS))}, got {torso}.")
    if shared_torso and tuple(layer_sizes) != tuple(value_layer_sizes):
        raise ValueError(
            "`value_layer_sizes` must equal `layer_sizes` with `shared_torso`, got "
            f"{tuple(value_layer_sizes)} and {tuple(layer_sizes)}. Give both the same sizes, or each its "
            "own torso."
        )
    make_torso = _TORSOS[torso]
    features_in = encoder.output_size if memory is None else memory.output_size
    policy_torso = make_torso(features_in, layer_sizes, generator=generator)
    features = policy_torso.output_size
    policy_head: nn.Module
    if isinstance(num_actions, int):
        policy_head = CategoricalHead(features, num_actions, gain=policy_gain, generator=generator)
    elif num_actions is not None:
        policy_head = MultiCategoricalHead(features, num_actions, gain=policy_gain, generator=generator)
    else:
        assert action_size is not None
        policy_head = GaussianHead(
            features,
            action_size,
            state_dependent_std=state_dependent_std,
            initial_stddev=initial_stddev,
            gain=policy_gain,
            generator=generator,
        )
    value_torso = None if shared_torso else make_torso(features_in, value_layer_sizes, generator=generator)
    value_features = features if value_torso is None else value_torso.output_size
    return ActorCritic(
        normalizer=normalizer,
        encoder=encoder,
        encoder_loss=encoder_loss,
        memory=memory,
        policy_torso=policy_torso,
        value_torso=value_torso,
        policy_head=policy_head,
        value_head=orthogonal_linear(value_features, 1, _VALUE_GAIN, generator),
    )


def _check_at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"`{name}` must be >= 1, got {value}.")
