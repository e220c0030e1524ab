"""Networks of the off-policy kit written out by hand, which the reference steps of its agents are made of.

None of the library's maths is used. A network is its state dict; all is float64. Shapes: B batch, D action
dimensions, O observation size.
"""

import math

import torch

from .mpo import reference

Weights = dict[str, torch.Tensor]


def part(weights: Weights, prefix: str) -> Weights:
    """The weights of one of its modules, by their names there."""
    return {name[len(prefix) + 1 :]: x for name, x in weights.items() if name.startswith(f"{prefix}.")}


def linear(weights: Weights, name: str, x: torch.Tensor) -> torch.Tensor:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def squash(bounds: Weights, raw: torch.Tensor) -> torch.Tensor:
    """The action within its bounds, [..., D]."""
    return bounds["low"] + (bounds["high"] - bounds["low"]) * (torch.tanh(raw) + 1.0) / 2.0


def deterministic(weights: Weights, observation: torch.Tensor) -> torch.Tensor:
    """The action of `off_policy.make_deterministic_policy`, [B, D]."""
    torso = {f"torso.{name}": x for name, x in part(weights, "policy.0").items()}
    features = reference.torso(torso, observation)
    return squash(part(weights, "policy.2"), linear(weights, "policy.1", features))


def head(weights: Weights, member: int, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """The numbers that the head of a critic gives, [B, K]."""
    critic = part(weights, f"critic.members.{member}")
    clipped = torch.minimum(torch.maximum(action, critic["low"]), critic["high"])
    return linear(critic, "head", reference.torso(critic, torch.cat([observation, clipped], dim=-1)))


def num_members(weights: Weights) -> int:
    return len({name.split(".")[2] for name in weights if name.startswith("critic.members.")})


def is_trained(name: str) -> bool:
    return name.split(".")[-1] not in ("low", "high", "atoms", "edges")


def leaves(weights: Weights) -> Weights:
    """Copies that gradients flow to."""
    return {name: x.clone().requires_grad_(is_trained(name)) for name, x in weights.items()}


def descend(
    weights: Weights, loss: torch.Tensor, learning_rate: float, max_norm: float = math.inf
) -> tuple[Weights, torch.Tensor]:
    """The weights after a step of plain gradient descent, and the gradient's norm; weights are `leaves`."""
    names = [name for name in weights if is_trained(name)]
    gradients = torch.autograd.grad(loss, [weights[name] for name in names])
    norm = sum((gradient**2).sum() for gradient in gradients).sqrt()
    factor = min(1.0, max_norm / (float(norm) + 1e-6))  # the small number is torch's
    after = dict(weights)
    for name, gradient in zip(names, gradients, strict=True):
        after[name] = weights[name] - learning_rate * factor * gradient
    return {name: x.detach() for name, x in after.items()}, norm


def mixed(slow: Weights, fast: Weights, rate: float) -> Weights:
    """A target network after it went some of the way."""
    return {name: (1.0 - rate) * slow[name] + rate * fast[name] for name in slow}
