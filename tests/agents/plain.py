"""Networks of the off-policy kit written out by hand, which the reference steps of its agents are made of.

None of the library's maths is used. A network is its state dict; all is float64. Shapes: B batch, D action
dimensions, O observation size.
"""

import math

import torch
from torch import distributions

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


def gaussian(weights: Weights, observation: torch.Tensor) -> distributions.Normal:
    """The distribution of raw actions of `off_policy.make_raw_policy`, [B, D]."""
    policy = part(weights, "policy")
    found = reference.torso(policy, observation)
    mean, log_std = (linear(policy, f"{name}_head", found) for name in ("mean", "log_std"))
    return distributions.Normal(mean, log_std.clamp(-7.0, 2.0).exp())


def clipped_log_likelihood(
    policy: distributions.Normal, action: torch.Tensor, low: list[float], high: list[float]
) -> torch.Tensor:
    """That of samples clipped to their bounds, [B]: at a bound, of all that lies beyond."""
    rows = []
    for b in range(len(action)):
        total = torch.zeros(())
        for d, (smallest, largest) in enumerate(zip(low, high, strict=True)):
            normal = distributions.Normal(policy.mean[b, d], policy.stddev[b, d])
            x = action[b, d]
            if x <= smallest:
                total = total + (0.5 * torch.erfc((normal.mean - x) / normal.stddev / 2**0.5)).log()
            elif x >= largest:
                total = total + (0.5 * torch.erfc((x - normal.mean) / normal.stddev / 2**0.5)).log()
            else:
                total = total + normal.log_prob(x)
        rows.append(total)
    return torch.stack(rows)


def head(weights: Weights, member: int, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """The numbers that the head of a critic gives, [B, K]."""
    critic = part(weights, f"critic.members.{member}")
    clipped = torch.minimum(torch.maximum(action, critic["low"]), critic["high"])
    return linear(critic, "head", reference.torso(critic, torch.cat([observation, clipped], dim=-1)))


def features(weights: Weights, x: torch.Tensor) -> torch.Tensor:
    """A torso's features; with weights that are all matrices, they are Linear and ReLU layers."""
    own = part(weights, "torso")
    if any(x.ndim == 1 for name, x in own.items() if name.endswith("weight")):
        return reference.torso(weights, x)
    for index in sorted({int(name.split(".")[0]) for name in own}):
        x = linear(own, str(index), x).clamp(min=0.0)
    return x


def outputs_of_actions(weights: Weights, x: torch.Tensor, num_actions: int, *, dueling: bool) -> torch.Tensor:
    """What the head of a critic of discrete actions gives for each of the K actions, [B, K, 1 or bins]."""

    def head_of(member: Weights) -> torch.Tensor:
        return linear(member, "head", features(member, x))

    member = part(weights, "critic.members.0")
    if not dueling:
        return head_of(member).unflatten(-1, (num_actions, -1))
    v, a = head_of(part(member, "value")), head_of(part(member, "advantage"))
    a = a.unflatten(-1, (num_actions, -1))
    mean = sum(a[:, k] for k in range(num_actions)) / num_actions
    return torch.stack([v + a[:, k] - mean for k in range(num_actions)], dim=1)


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
