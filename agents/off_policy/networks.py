"""Critics and policies of agents that learn from transitions, behind encoders of the observations.

Shapes: D action dimensions; K discrete actions; `...` leading axes, such as [B].
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import nn

from minerva_acme import distributions, learners, networks, specs, types
from minerva_acme.agents import actions, settings
from minerva_acme.agents.off_policy import config as off_policy_config
from minerva_acme.networks import linear

TORSOS: Mapping[str, networks.TorsoFactory] = {
    "mlp": networks.LayerNormMLP,
    "relu": networks.ReLUMLP,
    "simba": networks.SimBa,
}
"""The torsos by their names in configs."""

_LAST_LAYER = 3e-3  # bound of its initial weights: first actions are near the middle (Lillicrap et al. 2016)


def make_member(
    features: int,
    action_spec: Any,
    config: off_policy_config.CriticConfig,
    generator: torch.Generator,
    scale: networks.ReturnScale | None = None,
    torso: networks.TorsoFactory | None = None,
    num_objectives: int | None = None,
) -> nn.Module:
    """Makes one critic, of features and actions or of all discrete actions; see `MakeMember`, `make_head`.

    Of hybrid actions it takes the continuous part and one-hot choices; see `actions.OneHot`. `torso` replaces
    the one that the config names.
    """
    make_torso, num_actions, bounds = torso or TORSOS[config.torso], None, None
    if isinstance(action_spec, specs.DiscreteArray):
        num_actions = action_spec.num_values
    else:
        continuous, num_values = actions.parts(action_spec)
        low, high = (torch.from_numpy(bound) for bound in specs.bounds(continuous))
        one_hot = torch.zeros(sum(num_values))
        bounds = torch.cat([low, one_hot]), torch.cat([high, one_hot + 1.0])
        features += len(bounds[0])
    body = make_torso(features, config.critic_layer_sizes, generator=generator)
    head = make_head(body.output_size, num_actions, config, generator, scale, num_objectives)
    return networks.Critic(body, head, bounds=bounds)


def make_dueling_member(
    features: int,
    action_spec: specs.BoundedArray,
    config: off_policy_config.CriticConfig,
    generator: torch.Generator,
) -> nn.Module:
    """Makes one critic of all discrete actions, from a value of the state and advantages of the actions."""
    torso = TORSOS[config.torso](features, config.critic_layer_sizes, generator=generator)
    value = networks.Critic(torso, make_head(torso.output_size, None, config, generator), bounds=None)
    return networks.DuelingCritic(value, make_member(features, action_spec, config, generator))


MakeMember: TypeAlias = Callable[
    [int, specs.BoundedArray, off_policy_config.CriticConfig, torch.Generator], nn.Module
]
"""Makes a critic of an ensemble from the number of features, the action spec, the config and a generator."""

MakePolicy: TypeAlias = Callable[
    [specs.EnvironmentSpec, Sequence[int], torch.Generator, networks.TorsoFactory, networks.Encoder],
    nn.Module,
]
"""Makes a policy of observations, as `make_gaussian_policy` does, from the environment's spec, the number of
units of each layer, a generator, the torso and the encoder."""

MakeEncoder: TypeAlias = Callable[[specs.EnvironmentSpec, torch.Generator], networks.Encoder]
"""Makes an encoder of an environment's observations, as a builder's `make_encoder` does."""


def make_encoder(
    spec: specs.EnvironmentSpec, config: off_policy_config.OffPolicyConfig, generator: torch.Generator
) -> networks.Encoder:
    """Makes the encoder that a config names. For the arguments see `make_critic`."""
    return networks.make_encoder(spec.observations, generator=generator, image_encoder=config.image_encoder)


def make_whole_encoder(
    spec: specs.EnvironmentSpec,
    config: off_policy_config.OffPolicyConfig,
    generator: torch.Generator,
    make: MakeEncoder | None = None,
    make_memory: Callable[[int, torch.Generator], networks.Memory] | None = None,
    *,
    for_critic: bool = True,
) -> networks.Encoder:
    """Makes the encoder of a network: all that the config puts around the encoder itself.

        observation -> normalised, unless it is images alone -> by `make`, for each part that networks see
                    -> memory

    Args:
        spec: The environment's spec.
        config: What to put around the encoder.
        generator: Draws the initial weights.
        make: Makes the encoder itself, or None for the config's.
        make_memory: Makes the memory behind the encoder, or None for the config's.
        for_critic: Whether the network sees the entries of the observation that the critic alone sees.
    """
    entries = networks.critic_entries(spec.observations, getattr(config, "critic_observations", ()))

    def make_part(observations: types.NestedSpec) -> networks.Encoder:
        part = spec._replace(observations=observations)
        return make_encoder(part, config, generator) if make is None else make(part, generator)

    encoder = networks.make_parted_encoder(spec.observations, entries, make_part, for_critic=for_critic)
    if config.normalize_observations:
        observations = spec.observations if for_critic else specs.without(spec.observations, entries)
        normalizer = networks.make_normalizer(observations, each_entry=bool(entries))
        if normalizer is not None:
            encoder = networks.NormalizedEncoder(normalizer, encoder)
    if isinstance(config, settings.MemoryConfig) and config.has_memory:
        assert config.memory != "none"
        size = encoder.output_size
        if make_memory is None:
            memory = networks.make_memory(config.memory, size, config.memory_size, generator=generator)
        else:
            memory = make_memory(size, generator)
        encoder = networks.RecurrentEncoder(encoder, memory)
    return encoder


def make_critic(
    spec: specs.EnvironmentSpec,
    config: off_policy_config.CriticConfig,
    generator: torch.Generator,
    make_member: MakeMember = make_member,
    encoder: networks.Encoder | None = None,
) -> networks.EncodedCritic:
    """Makes the ensemble of critics that a config describes, behind one encoder.

    Args:
        spec: The environment's spec: any observations that `networks.make_encoder` takes; actions float32 [D]
            with finite bounds, or discrete.
        config: The critics' predictions, sizes and number.
        generator: Draws the initial weights.
        make_member: Makes each critic.
        encoder: The critics' encoder, or None to make one.

    Returns:
        A module from (observation [..., *], action [..., D]), or from (observation) for all K discrete
        actions, to a `networks.EnsemblePrediction`; it has the ensemble's `loss`.
    """
    encoder = encoder or make_encoder(spec, config, generator)
    members = [
        make_member(encoder.output_size, spec.actions, config, generator) for _ in range(config.num_critics)
    ]
    return networks.EncodedCritic(encoder, networks.Ensemble(members, rule=config.critic_ensemble))


def make_head(
    features: int,
    num_actions: int | None,
    config: off_policy_config.CriticConfig,
    generator: torch.Generator,
    scale: networks.ReturnScale | None = None,
    num_objectives: int | None = None,
) -> nn.Module:
    """Makes the head that a config names: see `networks.critic_heads`.

    Args:
        features: The number of the torso's features.
        num_actions: The number of discrete actions, K, or None for continuous actions.
        config: The kind of head, and its bins or components.
        generator: Draws the initial weights.
        scale: The scale of the returns in the bins, if the head has bins and they are scaled.
        num_objectives: The number of rewards whose returns are predicted, or None for one reward. A mixture
            takes one.
    """
    options: dict[str, Any] = {"num_actions": num_actions, "generator": generator}
    if num_objectives is not None:
        options["num_objectives"] = num_objectives
    if config.critic_head == "scalar":
        return networks.ScalarHead(features, **options)
    if config.critic_head == "mixture":
        return networks.MixtureOfGaussiansHead(
            features, num_components=config.num_components, init_scale=config.init_scale, **options
        )
    return networks.CategoricalCriticHead(
        features,
        vmin=config.vmin,
        vmax=config.vmax,
        num_bins=config.num_bins,
        projection=config.critic_head,
        scale=scale,
        **options,
    )


def make_gaussian_policy(
    spec: specs.EnvironmentSpec,
    layer_sizes: Sequence[int],
    generator: torch.Generator,
    torso: networks.TorsoFactory,
    encoder: networks.Encoder | None = None,
) -> networks.EncodedPolicy:
    """Makes a policy from observations to `distributions.SquashedGaussian`.

    Args:
        spec: The environment's spec, as in `make_critic`, with continuous actions.
        layer_sizes: The number of units of each layer of the torso.
        generator: Draws the initial weights.
        torso: One of `TORSOS`.
        encoder: The policy's encoder, or None to make one, for large images `nature`.
    """
    encoder = encoder or networks.make_encoder(spec.observations, generator=generator)
    squash = _make_squash(spec.actions)
    policy = networks.GaussianPolicy(
        encoder.output_size, len(squash.low), layer_sizes, generator=generator, torso=torso
    )
    return networks.EncodedPolicy(encoder, networks.SquashedPolicy(policy, squash))


def make_raw_policy(
    features: int,
    action_spec: Any,
    layer_sizes: Sequence[int],
    generator: torch.Generator,
    torso: networks.TorsoFactory,
    initial_stddev: float = 0.7,
    *,
    bounded_mean: bool = False,
) -> nn.Module:
    """Makes a policy from features to `distributions.DiagonalGaussian`, `Categorical` or `Hybrid` actions.

    Samples of the Gaussian are raw actions: they are clipped to their bounds when they are executed.

    Args:
        features: The number of features.
        action_spec: The spec of the actions: float32 [D], discrete or hybrid.
        layer_sizes: The number of units of each layer of the torso.
        generator: Draws the initial weights.
        torso: One of `TORSOS`.
        initial_stddev: The standard deviation of the untrained Gaussian, in units of the action.
        bounded_mean: Whether the mean stays within the bounds of the action. A loss of the raw actions'
            values needs it: beyond a bound, all actions are clipped to the same one and have the same value.
            A likelihood of recorded actions does not: it pulls the mean towards them from anywhere.
    """
    options: dict[str, Any] = {"generator": generator, "torso": torso}
    if isinstance(action_spec, specs.DiscreteArray):
        return networks.CategoricalPolicy(features, action_spec.num_values, layer_sizes, **options)
    continuous, num_values = actions.parts(action_spec)
    low, high = (torch.from_numpy(bound) for bound in specs.bounds(continuous))
    options |= {"initial_stddev": initial_stddev, "bounds": (low, high) if bounded_mean else None}
    if num_values:
        return networks.HybridPolicy(features, len(low), num_values, layer_sizes, **options)
    return networks.GaussianPolicy(features, len(low), layer_sizes, **options)


def make_clipped_policy(
    spec: specs.EnvironmentSpec,
    layer_sizes: Sequence[int],
    generator: torch.Generator,
    torso: networks.TorsoFactory,
    encoder: networks.Encoder,
    initial_stddev: float = 0.7,
    *,
    bounded_mean: bool = False,
) -> networks.EncodedPolicy:
    """Makes a policy of raw actions behind an encoder; see `make_raw_policy`."""
    size, actions = encoder.output_size, spec.actions
    policy = make_raw_policy(
        size, actions, layer_sizes, generator, torso, initial_stddev, bounded_mean=bounded_mean
    )
    return networks.EncodedPolicy(encoder, policy)


def make_deterministic_policy(
    spec: specs.EnvironmentSpec,
    layer_sizes: Sequence[int],
    generator: torch.Generator,
    torso: networks.TorsoFactory,
    encoder: networks.Encoder | None = None,
) -> networks.EncodedPolicy:
    """Makes a policy from observations to actions within their bounds; see `make_gaussian_policy`."""
    encoder = encoder or networks.make_encoder(spec.observations, generator=generator)
    squash = _make_squash(spec.actions)
    body = torso(encoder.output_size, layer_sizes, generator=generator)
    last = linear.unset(nn.Linear, body.output_size, len(squash.low))
    for parameter in last.parameters():
        nn.init.uniform_(parameter, -_LAST_LAYER, _LAST_LAYER, generator=generator)
    return networks.EncodedPolicy(encoder, nn.Sequential(body, last, squash))


def regress(critic: Any, batch: learners.Batch, prediction: Any, target: Any) -> learners.Loss:
    """Computes the loss of a critic's prediction against a target; the new priorities are its clipped errors.

    Args:
        critic: The critic, with its head's `loss`.
        batch: The transitions, possibly of sequences (see `over_sequences`), with their weights.
        prediction: The critic's prediction at their observations and actions, [B], or [B, T].
        target: Values or a `networks.ReturnDistribution`, [B] or [B, T], without gradient.
    """
    value = prediction.mean().detach()
    expected = target.mean() if isinstance(target, networks.ReturnDistribution) else target
    return learners.Loss(
        critic.loss(prediction, target, torch.ones_like(value) * batch.weights),
        {"q/mean": batch.mean(value), "q/target": batch.mean(expected)},
        (expected - value).abs().clamp(max=1.0),  # new items have the largest; see `Priorities`
    )


def value_and_gradient(
    value: Callable[[torch.Tensor], torch.Tensor], action: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the values, [...], of actions [..., D], and their gradients by the actions, [..., D]."""
    if torch.compiler.is_compiling():  # It supports only this transform, a tenth slower in eager mode.

        def total(action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            q = value(action)
            return q.sum(), q

        gradient, (_, q) = torch.func.grad_and_value(total, has_aux=True)(action)
        return q, gradient
    action.requires_grad_()
    q = value(action)
    (gradient,) = torch.autograd.grad(q.sum(), action)
    return q, gradient


def _make_squash(action_spec: specs.BoundedArray) -> distributions.TanhSquash:
    return distributions.TanhSquash(*(torch.from_numpy(bound) for bound in specs.bounds(action_spec)))
