"""Entries of an observation that only critics and value functions see.

Shapes: F features of the policy's part, G of the critic's; `...` any leading axes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from minerva_acme import specs, types
from minerva_acme.networks.encoders import Encoder, with_parts
from minerva_acme.networks.normalizer import EntriesNorm, NormalizedEncoder

# The entries of an environment that `wrappers.CriticObservationWrapper` has sorted.
_SORTED = {"policy", "critic"}


def critic_entries(observation_spec: types.NestedSpec, names: Sequence[str]) -> tuple[str, ...]:
    """Returns the entries of an observation that the critic alone sees.

    Args:
        observation_spec: The spec of an observation: a dict if there are names.
        names: Names of its entries. In an observation of `wrappers.CriticObservationWrapper`, which holds
            the entries with these names as `critic`, that entry is meant.

    Raises:
        ValueError: The observation has no such entries, or no others.
    """
    if not names:
        return ()
    if isinstance(observation_spec, Mapping) and {*observation_spec} == _SORTED:
        return ("critic",)
    if isinstance(observation_spec, Mapping) and {*observation_spec} == {"policy"}:
        raise ValueError(
            f"the environment must have {', '.join(names)} for the critic (`critic_observations`), but lacks "
            "some of it. A policy that was trained elsewhere can act in it: `load_policy`, `minerva eval`."
        )
    specs.check_critic_observations(observation_spec, names)
    return tuple(names)


def policy_part(observation: Any, entries: Sequence[str]) -> Any:
    """Returns a dict of specs, arrays or tensors without these entries; the entry itself if one is left."""
    return _part(specs.without(observation, entries))


def critic_part(observation: Any, entries: Sequence[str]) -> Any:
    """Returns these entries of a dict of specs, arrays or tensors; the entry itself if it is one."""
    return _part({name: observation[name] for name in entries})


class PartedEncoder(Encoder):
    """Encoders of the policy's part of an observation and of the critic's.

        features = [policy's part (F) | critic's part (G)], or [policy's part (F)] for a policy

    An observation that lacks the critic's entries gets the features of the policy's part alone.
    """

    def __init__(self, policy: Encoder, critic: Encoder | None, entries: Sequence[str]) -> None:
        """Takes the encoders.

        Args:
            policy: The encoder of `policy_part`.
            critic: The encoder of `critic_part`, or None for the encoder of a policy.
            entries: The names of the critic's entries.
        """
        super().__init__()
        self.policy = policy
        self.critic = critic
        self.entries = tuple(entries)
        """The names of the critic's entries."""
        self.output_size = policy.output_size + (0 if critic is None else critic.output_size)

    def forward(self, observation: types.NestedTensor) -> torch.Tensor:
        """Encodes a dict of [..., *leaf] -> [..., F + G] or [..., F]."""
        features: torch.Tensor = self.policy(policy_part(observation, self.entries))
        if self.critic is None or not {*self.entries} <= {*observation}:
            return features
        return torch.cat([features, self.critic(critic_part(observation, self.entries))], dim=-1)


def make_parted_encoder(
    observation_spec: types.NestedSpec,
    entries: Sequence[str],
    make: Callable[[types.NestedSpec], Encoder],
    *,
    for_critic: bool = True,
) -> Encoder:
    """Makes the encoder of an observation with entries for the critic alone, or by `make` if there are none.

    Args:
        observation_spec: The spec of an observation.
        entries: The critic's entries, from `critic_entries`.
        make: Makes the encoder of each part from its spec.
        for_critic: Whether the features include the critic's part.
    """
    if not entries:
        return make(observation_spec)
    policy = make(policy_part(observation_spec, entries))
    return PartedEncoder(
        policy, make(critic_part(observation_spec, entries)) if for_critic else None, entries
    )


class PolicyFeatures(nn.Module):
    """A module of the policy, on the first F features of a `PartedEncoder`, with no input for the others."""

    def __init__(self, num_features: int, module: nn.Module) -> None:
        """Takes the number of the policy's features, F, and the module."""
        super().__init__()
        self._num_features = num_features
        self.module = module

    def forward(self, features: torch.Tensor) -> Any:
        """Computes the module's output for [..., F] or [..., F + G]."""
        return self.module(features[..., : self._num_features])


def encoder_of_policy(encoder: nn.Module) -> Any:
    """Returns an encoder without the parts that are the critic's alone; the rest is shared, not copied."""
    if isinstance(encoder, PartedEncoder):
        of_policy = with_parts(encoder, critic=None)
        of_policy.output_size = encoder.policy.output_size
        return of_policy
    if isinstance(encoder, NormalizedEncoder) and isinstance(encoder.encoder, PartedEncoder):
        norm = encoder.normalizer
        norm = norm.without(encoder.encoder.entries) if isinstance(norm, EntriesNorm) else norm
        inner = encoder_of_policy(encoder.encoder)
        normalized = with_parts(encoder, normalizer=norm, encoder=inner)
        normalized.output_size = inner.output_size
        return normalized
    return encoder


def _part(entries: dict[str, Any]) -> Any:
    if len(entries) == 1:
        (only,) = entries.values()
        return only
    return entries
