"""Networks that give a policy and a value for each observation, as used by the on-policy agents.

Shapes: D action dimensions, or choices; K discrete actions; F features of an encoder, a memory or a
torso; `...` any leading axes, such as [n] or [T, E], which are the same for every leaf of an observation.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import torch
from torch import nn

from minerva_acme import types
from minerva_acme.distributions import Categorical, DiagonalGaussian, MultiCategorical
from minerva_acme.distributions.limits import MAX_LOG_STD, MIN_LOG_STD
from minerva_acme.networks.critic_observations import PartedEncoder, PolicyFeatures
from minerva_acme.networks.encoders import Encoder, IdentityEncoder, with_parts
from minerva_acme.networks.linear import orthogonal_linear
from minerva_acme.networks.memory import Memory, MemoryState, Past
from minerva_acme.networks.normalizer import Normalizer
from minerva_acme.networks.policy import LOG_STD_HEAD_GAIN, log_of_initial_stddev
from minerva_acme.networks.torso import LayerNormMLP, TanhMLP

_VALUE_GAIN = 1.0
EncoderLoss: TypeAlias = Literal["both", "policy", "value"]
Policy: TypeAlias = DiagonalGaussian | Categorical | MultiCategorical
_TORSOS: dict[str, type[LayerNormMLP] | type[TanhMLP]] = {"layer_norm": LayerNormMLP, "tanh": TanhMLP}


class PolicyAndValue(NamedTuple):
    """The output of an `ActorCritic` for each observation."""

    policy: Policy  # over [..., D], [..., K] or [..., D, K]
    value: torch.Tensor  # [...]


class ActorCritic(nn.Module):
    """A normaliser, an encoder, an optional memory, and the torsos and heads of a policy and a value.

    Any modules with these signatures can be used:

        encoder(normalised observation, a nest of [..., *leaf]) -> features [..., F]
        memory                                                      see `Memory`
        policy_torso, value_torso(features [..., F]) -> features [..., F]
        policy_head(features [..., F]) -> DiagonalGaussian of [..., D], Categorical of [..., K] or
            MultiCategorical of [..., D, K]
        value_head(features [..., F]) -> [..., 1]

    Learners call `from_normalized` and `value`, actors `policy`; a subclass that computes something else
    overrides all three. Nothing here calls `forward`.

    With a memory, observations come from T steps of E environments, with leading axes [T, E] or, time first,
    [n = T * E], and `past` holds the memory's state before them. Burn-in steps, which only warm up the
    memory, have no output.
    """

    def __init__(
        self,
        *,
        normalizer: Normalizer | None,
        encoder: nn.Module,
        encoder_loss: EncoderLoss,
        memory: Memory | None = None,
        policy_torso: nn.Module,
        value_torso: nn.Module | None,
        policy_head: nn.Module,
        value_head: nn.Module,
    ) -> None:
        """Makes the network from its parts.

        Args:
            normalizer: The normaliser of observations, or None to leave them as they are.
            encoder: The encoder of observations, shared by policy and value; `IdentityEncoder` for a vector.
            encoder_loss: The loss that trains the encoder and the memory: the policy's, the value's or both.
            memory: The memory between the encoder and the torsos; None if the observation alone is enough.
            policy_torso: The torso of the policy.
            value_torso: The torso of the value, or None to share the features of `policy_torso`.
            policy_head: The module that turns features into a distribution.
            value_head: The module that turns features into a value.
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
        """Computes policy and value at each observation; shared features are computed once."""
        return self.from_normalized(self.normalize(observation), past)

    def policy(self, observation: types.NestedTensor, past: Past | tuple[()] = ()) -> Policy:
        """Computes only the policy at each observation."""
        features = self.policy_torso(self._encode(self.normalize(observation), past))
        distribution: Policy = self.policy_head(features)
        return distribution

    def value(self, observation: types.NestedTensor, past: Past | tuple[()] = ()) -> torch.Tensor:
        """Computes only the value at each observation, [...]."""
        torso = self.policy_torso if self.value_torso is None else self.value_torso
        value: torch.Tensor = self.value_head(torso(self._encode(self.normalize(observation), past)))
        return value.squeeze(-1)

    def normalize(self, observation: types.NestedTensor) -> types.NestedTensor:
        """Returns the observation as the encoder receives it, with the same structure and shapes."""
        return observation if self.normalizer is None else self.normalizer(observation)

    def from_normalized(self, observation: types.NestedTensor, past: Past | tuple[()] = ()) -> PolicyAndValue:
        """Computes `forward` from the output of `normalize`, which a learner calls once for all epochs."""
        encoded = self._encode(observation, past)
        # Detached from the encoder if only the other loss trains it.
        features = self.policy_torso(encoded.detach() if self._encoder_loss == "value" else encoded)
        value_features = features
        if self.value_torso is not None or self._encoder_loss != "both":
            torso = self.policy_torso if self.value_torso is None else self.value_torso
            value_features = torso(encoded.detach() if self._encoder_loss == "policy" else encoded)
        return PolicyAndValue(self.policy_head(features), self.value_head(value_features).squeeze(-1))

    def remember(
        self, observation: types.NestedTensor, state: MemoryState, start: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, MemoryState]:
        """Makes one step of the memory.

        Args:
            observation: The observation, leaves [E, ...].
            state: The memory's state before it, [E, ...] each.
            start: 1 where an episode begins with this observation, [E]; None if no episode begins.

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

    def without_memory(self) -> Self:
        """Returns a network of the same class, torsos and heads that takes the memory's features as input."""
        assert self.memory is not None
        encoder = IdentityEncoder(self.memory.output_size)
        behind = with_parts(self, normalizer=None, encoder=encoder, memory=None)
        if type(self).normalize is not ActorCritic.normalize:  # `remember` has called it already
            behind.normalize = _unchanged  # type: ignore[method-assign]
        return behind

    def _encode(self, observation: types.NestedTensor, past: Past | tuple[()]) -> torch.Tensor:
        """Computes the input of the torsos, without the burn-in steps."""
        features: torch.Tensor = self.encoder(observation)
        if self.memory is None:
            return features
        if not past:
            raise ValueError(
                "`past` must say what the memory holds and where episodes begin, got none. Give a `Past`, or "
                "make the network without `memory`."
            )
        steps = features.reshape(*past.start.shape, -1)
        remembered = self.memory.recall(steps, past)
        return remembered if features.ndim == steps.ndim else remembered.flatten(0, 1)


def _unchanged(observation: types.NestedTensor) -> types.NestedTensor:
    return observation


def policy_of(module: nn.Module) -> Callable[..., Any]:
    """Returns the callable that acts: the policy of an `ActorCritic`, or any other module itself."""
    return module.policy if isinstance(module, ActorCritic) else module


def memory_of(module: nn.Module) -> Memory | None:
    """Returns a module's memory of the episode, or None if it has none."""
    memory = getattr(module, "memory", None)
    return memory if isinstance(memory, Memory) else None


class GaussianHead(nn.Module):
    """A head that gives a mean, and a log-std clamped to [-7, 2], from the features or as its own parameter.

    The clamp is the same as in `GaussianPolicy`, for the same reason.
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
            features: The number of features, F.
            action_size: The number of action dimensions, D.
            state_dependent_std: If true, the log-std is a second linear layer of the features; if false, one
                parameter [D] for all states.
            initial_stddev: The standard deviation of the untrained policy, in units of the raw action.
            gain: The gain of the mean's orthogonal weights; 0.01 starts it near zero in every state.
            generator: The generator for the initial weights; None uses torch's global generator.

        Raises:
            ValueError: A size is below 1, or `initial_stddev` is beyond what log-std is clamped to.
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
        """Computes the Gaussian for each row of features, [..., F] -> [..., D]."""
        mean = self.mean_head(features)
        if self.log_std_head is not None:
            return DiagonalGaussian(mean, self.log_std_head(features).clamp(MIN_LOG_STD, MAX_LOG_STD))
        assert self.log_std is not None
        return DiagonalGaussian(mean, self.log_std.clamp(MIN_LOG_STD, MAX_LOG_STD).expand_as(mean))


class CategoricalHead(nn.Module):
    """A head that gives logits by one linear layer."""

    def __init__(
        self, features: int, num_actions: int, *, gain: float, generator: torch.Generator | None = None
    ) -> None:
        """Makes the layer.

        Args:
            features: The number of features, F.
            num_actions: The number of actions, K.
            gain: The gain of the orthogonal weights; with 0.01 the policy starts near uniform in every state.
            generator: The generator for the initial weights; None uses torch's global generator.

        Raises:
            ValueError: A size is below 1.
        """
        super().__init__()
        _check_at_least_one("features", features)
        _check_at_least_one("num_actions", num_actions)
        self.logits = orthogonal_linear(features, num_actions, gain, generator)

    def forward(self, features: torch.Tensor) -> Categorical:
        """Computes the distribution for each row of features, [..., F] -> [..., K]."""
        return Categorical(self.logits(features))


class MultiCategoricalHead(nn.Module):
    """A head that gives the logits of several choices, which may differ in their number of values."""

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
            features: The number of features, F.
            num_values: The number of values of each of the D choices; K is the largest.
            gain: The gain of the orthogonal weights; with 0.01 the policy starts near uniform in every state.
            generator: The generator for the initial weights; None uses torch's global generator.

        Raises:
            ValueError: There is no choice, or a size is below 1.
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
        """Computes the distribution for each row of features, [..., F] -> [..., D, K]."""
        logits = self.logits(features).unflatten(-1, self.is_value.shape)
        return MultiCategorical(Categorical(logits).masked(self.is_value).logits)


def make_actor_critic(
    *,
    normalizer: Normalizer | None,
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
        normalizer: The normaliser of observations; see `make_normalizer`.
        encoder: The encoder of observations; see `make_encoder`. The policy gets the features of its own part
            of a `PartedEncoder`.
        encoder_loss: The loss that trains the encoder and the memory: the policy's, the value's or both.
        memory: The memory, which takes the encoder's features, or None for no memory; see `make_memory`.
        num_actions: K for discrete actions, or the number of values of each choice if there are several.
        action_size: D for continuous actions; give either this or `num_actions`.
        layer_sizes: The number of units in each layer of the policy's torso.
        value_layer_sizes: The number of units in each layer of the value's torso.
        torso: The kind of torso: `tanh` for `TanhMLP`, `layer_norm` for `LayerNormMLP`.
        shared_torso: Whether policy and value share one torso; their layer sizes must then be equal.
        state_dependent_std: See `GaussianHead`; no effect with discrete actions.
        initial_stddev: See `GaussianHead`; no effect with discrete actions.
        policy_gain: The gain of the policy head's weights.
        generator: The generator for the initial weights; None uses torch's global generator.

    Raises:
        ValueError: Both or neither of `num_actions` and `action_size` are given, a torso is unknown
            or has no layer, or a shared torso is given two different sizes or a part for the value alone.
    """
    if isinstance(encoder, PartedEncoder) and (shared_torso or memory is not None):
        raise ValueError(
            "`encoder` must not have a part for the value alone with a shared torso or a memory, which the "
            "policy uses too. Give both their own torsos, and no memory."
        )
    if (num_actions is None) == (action_size is None):
        raise ValueError(
            f"Exactly one of `num_actions` and `action_size` must be given, got {num_actions} and "
            f"{action_size}. Give `num_actions` for discrete actions, `action_size` for continuous ones."
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
    of_policy = encoder.policy.output_size if isinstance(encoder, PartedEncoder) else features_in
    policy_torso: nn.Module = make_torso(of_policy, layer_sizes, generator=generator)
    features = layer_sizes[-1]
    if isinstance(encoder, PartedEncoder):
        policy_torso = PolicyFeatures(of_policy, policy_torso)
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
