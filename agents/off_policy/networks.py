"""Critics and policies of agents over transitions, behind encoders of the observations.

Shapes: D action dimensions; K discrete actions; `...` leading axes, such as [B].
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import torch
from torch import nn

from minerva_acme import distributions, learners, networks, specs
from minerva_acme.agents.off_policy import config as off_policy_config

TORSOS: Mapping[str, networks.TorsoFactory] = {
    "mlp": networks.LayerNormMLP,
    "relu": networks.ReLUMLP,
    "simba": networks.SimBa,
}
"""By the names that configs give them."""

_LAST_LAYER = 3e-3  # bound of its first weights: actions begin in the middle (Lillicrap et al. 2016)


class CriticSettings(Protocol):
    """What a config says of one critic, such as a `CriticConfig`."""

    @property
    def torso(self) -> str:
        """One of `TORSOS`."""

    @property
    def critic_layer_sizes(self) -> Sequence[int]:
        """Units of each layer of the torso."""

    @property
    def critic_head(self) -> Literal["scalar", "c51", "two_hot", "hl_gauss", "mixture"]:
        """What the critic predicts."""

    @property
    def vmin(self) -> float:
        """Smallest return that bins hold."""

    @property
    def vmax(self) -> float:
        """Largest return that bins hold."""

    @property
    def num_bins(self) -> int:
        """Bins between them."""

    @property
    def num_components(self) -> int:
        """Gaussians of a mixture."""

    @property
    def init_scale(self) -> float:
        """Their standard deviation at first."""


def make_member(
    features: int,
    action_spec: specs.BoundedArray,
    config: CriticSettings,
    generator: torch.Generator,
) -> nn.Module:
    """Makes one critic, of features and actions or of all discrete actions; arguments as of `MakeMember`."""
    make_torso, num_actions, bounds = TORSOS[config.torso], None, None
    if isinstance(action_spec, specs.DiscreteArray):
        num_actions = action_spec.num_values
    else:
        low, high = (torch.from_numpy(bound) for bound in specs.bounds(action_spec))
        bounds, features = (low, high), features + len(low)
    torso = make_torso(features, config.critic_layer_sizes, generator=generator)
    head = make_head(torso.output_size, num_actions, config, generator)
    return networks.Critic(torso, head, bounds=bounds)


MakeMember: TypeAlias = Callable[
    [int, specs.BoundedArray, off_policy_config.CriticConfig, torch.Generator], nn.Module
]
"""Makes a critic of an ensemble from the number of features, the spec of actions, the config, a generator."""

MakeEncoder: TypeAlias = Callable[[specs.EnvironmentSpec, torch.Generator], networks.Encoder]
"""Makes an encoder of an environment's observations, as a builder's `make_encoder` does."""


def make_encoder(
    spec: specs.EnvironmentSpec, config: off_policy_config.OffPolicyConfig, generator: torch.Generator
) -> networks.Encoder:
    """Makes the encoder that a config names. Arguments as of `make_critic`."""
    return networks.make_encoder(spec.observations, generator=generator, image_encoder=config.image_encoder)


def make_critic(
    spec: specs.EnvironmentSpec,
    config: off_policy_config.CriticConfig,
    generator: torch.Generator,
    make_member: MakeMember = make_member,
    encoder: networks.Encoder | None = None,
) -> networks.EncodedCritic:
    """Makes the ensemble of critics that a config describes, behind one encoder.

    Args:
        spec: any observations that `networks.make_encoder` takes; actions float32 [D] with finite bounds, or
            discrete.
        config: what they predict, their sizes and number.
        generator: draws the initial weights.
        make_member: makes each critic.
        encoder: what the critics see through; None: one is made.

    Returns:
        Of (observation [..., *], action [..., D]), or of (observation) for all K discrete actions, a
        `networks.EnsemblePrediction`; with the ensemble's `loss`.
    """
    encoder = encoder or make_encoder(spec, config, generator)
    members = [
        make_member(encoder.output_size, spec.actions, config, generator) for _ in range(config.num_critics)
    ]
    return networks.EncodedCritic(encoder, networks.Ensemble(members, rule=config.critic_ensemble))


def make_head(
    features: int,
    num_actions: int | None,
    config: CriticSettings,
    generator: torch.Generator,
) -> nn.Module:
    """Makes the head that a config names: see `networks.critic_heads`.

    Args:
        features: of the torso.
        num_actions: K; None where actions are not discrete.
        config: which head, its bins or components.
        generator: draws the initial weights.
    """
    options: dict[str, Any] = {"num_actions": num_actions, "generator": generator}
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
        spec: as of `make_critic`, with continuous actions.
        layer_sizes: units of each layer of the torso.
        generator: draws the initial weights.
        torso: one of `TORSOS`.
        encoder: what the policy sees through; None: one is made, `nature`'s for large images.
    """
    encoder = encoder or networks.make_encoder(spec.observations, generator=generator)
    squash = _make_squash(spec.actions)
    policy = networks.GaussianPolicy(
        encoder.output_size, len(squash.low), layer_sizes, generator=generator, torso=torso
    )
    return networks.EncodedPolicy(encoder, networks.SquashedPolicy(policy, squash))


def make_deterministic_policy(
    spec: specs.EnvironmentSpec,
    layer_sizes: Sequence[int],
    generator: torch.Generator,
    torso: networks.TorsoFactory,
    encoder: networks.Encoder | None = None,
) -> networks.EncodedPolicy:
    """Makes a policy from observations to actions within their bounds; arguments as of the Gaussian one."""
    encoder = encoder or networks.make_encoder(spec.observations, generator=generator)
    squash = _make_squash(spec.actions)
    body = torso(encoder.output_size, layer_sizes, generator=generator)
    with torch.random.fork_rng(devices=[]):  # torch draws weights of its own here
        last = nn.Linear(body.output_size, len(squash.low))
    for parameter in last.parameters():
        nn.init.uniform_(parameter, -_LAST_LAYER, _LAST_LAYER, generator=generator)
    return networks.EncodedPolicy(encoder, nn.Sequential(body, last, squash))


def regress(critic: Any, batch: learners.Batch, prediction: Any, target: Any) -> learners.Loss:
    """The loss of a critic's prediction against a target; new priorities are its clipped errors.

    Args:
        critic: with the `loss` of its head.
        batch: transitions with their weights.
        prediction: of the critic at their observations and actions, [B].
        target: values or a `networks.ReturnDistribution`, [B], without gradient.
    """
    value = prediction.mean().detach()
    expected = target.mean() if isinstance(target, networks.ReturnDistribution) else target
    return learners.Loss(
        critic.loss(prediction, target, torch.ones_like(value) * batch.weights),
        {"q/mean": value.mean(), "q/target": expected.mean()},
        (expected - value).abs().clamp(max=1.0),  # the largest is that of new items; see `Priorities`
    )


def _make_squash(action_spec: specs.BoundedArray) -> distributions.TanhSquash:
    return distributions.TanhSquash(*(torch.from_numpy(bound) for bound in specs.bounds(action_spec)))
