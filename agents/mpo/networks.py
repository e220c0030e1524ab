"""The networks that MPO trains.

Shapes: F features; D action dimensions; K discrete actions; of hybrid actions, D continuous ones, C choices
and V values of all choices; J rewards that are objectives; `...` leading axes.
"""

import copy
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import nn

from minerva_acme import acceleration, networks, specs
from minerva_acme.agents.mpo import config as mpo_config
from minerva_acme.agents.mpo import objectives
from minerva_acme.agents.off_policy import networks as kit
from minerva_acme.names import readable

# Batch norm is for MPO's critics alone, since its learner keeps the statistics to replayed pairs.
_CRITIC_TORSOS: Mapping[str, networks.TorsoFactory] = {**kit.TORSOS, "batch_norm": networks.BatchNormMLP}


class MPONetworks(NamedTuple):
    """A policy, a critic, and the encoder of observations in front of both.

    Any modules with these signatures will do; the leading axes `...` are the same for inputs and output:

        policy(features [..., F]) -> distributions.Distribution of [..., D], [..., K] or [..., D + C]
        critic(features [..., F], action [..., D]) -> networks.Prediction [...]    for continuous actions
        critic(features [..., F], action [..., D + V]) -> networks.Prediction [...]    for hybrid actions
        critic(features [..., F]) -> networks.Prediction [..., K]                  for all discrete actions
        the same with `objectives` -> networks.Prediction [..., J] or [..., J, K]  one for each reward
        encoder(observation, a nest of [..., *]) -> features [..., F]

    With a memory, the encoder is a `networks.RecurrentEncoder`, of sequences: policy and critic share what it
    remembers. An actor then needs one state, which the critic's features in replay can start from too. The
    memory sees observations alone, so that an action reaches its own value only as the critic's input.

    A critic has a `loss`; see `networks.critic_heads`. The learner calls it with actions that are clipped to
    their bounds, also where it values raw actions, and with features for each of them: [N, S, F] for N
    actions in each of S states. It is in training mode only for the prediction that it is trained on.

    An encoder or policy of your own class is computed a second time for the KLs, as it acts, in case it has
    something like dropout. Say `same_in_training = True` in the class if it has not.
    """

    policy: nn.Module
    critic: nn.Module
    encoder: nn.Module = nn.Identity()

    def copy(self) -> "MPONetworks":
        """Returns frozen copies in evaluation mode, for target networks."""
        copies = MPONetworks(*(copy.deepcopy(module).requires_grad_(False).eval() for module in self))
        for part in nn.ModuleList(copies).modules():
            if isinstance(part, nn.RNNBase):
                part.flatten_parameters()  # Copied weights lie apart; cuDNN would join them at each call.
        return copies

    def acting(self) -> nn.Module:
        """Returns the policy as a function of the observation: the policy itself if nothing is encoded.

        The parts of an encoder that are the critic's alone are left out.
        """
        if type(self.encoder) in (nn.Identity, networks.IdentityEncoder) and not any(
            acceleration.hooks_of(self.encoder)
        ):
            return self.policy
        return networks.EncodedPolicy(networks.encoder_of_policy(self.encoder), self.policy)

    def __repr__(self) -> str:
        return readable.of_modules(self)


def make_networks(
    spec: specs.EnvironmentSpec,
    config: mpo_config.MPOConfig,
    generator: torch.Generator,
    encoder: networks.Encoder | None = None,
) -> MPONetworks:
    """Makes the config's torsos behind an encoder of the observations, which leaves a flat vector unchanged.

    Args:
        spec: The environment's spec: any observations that `networks.make_encoder` takes; actions float32 [D]
            with finite bounds, discrete or hybrid.
        config: The torsos, the critic's head, the memory, and whether observations are normalised.
        generator: Draws the initial weights.
        encoder: The encoder with all that the config puts around it, or None to make it.
    """
    encoder = encoder or kit.make_whole_encoder(spec, config, generator)
    of_policy = networks.encoder_of_policy(encoder)
    parts = encoder.output_size, spec.actions, config, generator
    policy = kit.make_raw_policy(
        of_policy.output_size,
        spec.actions,
        config.policy_layer_sizes,
        generator,
        kit.TORSOS[config.torso],
        config.init_stddev,
        bounded_mean=config.bounded_mean,
    )
    if of_policy is not encoder:
        policy = networks.PolicyFeatures(of_policy.output_size, policy)
    torso = _CRITIC_TORSOS[config.torso if config.critic_torso == "same" else config.critic_torso]
    scale = networks.ReturnScale(max(-config.vmin, config.vmax)) if config.scale_returns else None
    num_objectives = len(objectives.of_rewards(spec, config)) or None
    critics = [kit.make_member(*parts, scale, torso, num_objectives) for _ in range(config.num_critics)]
    critic = critics[0] if len(critics) == 1 else networks.Ensemble(critics, rule=config.critic_ensemble)
    return MPONetworks(policy=policy, critic=critic, encoder=encoder)
