"""Learner steps of MPO with a memory against those of `reference_memory.py`, in float64.

As in `test_reference_step.py`, three steps are made from a state in which nothing is special. Sequences begin
with the state that an actor had, within an episode or not, and with rows of burn-in.
"""

import copy
import dataclasses

import pytest
import torch

from minerva_acme import types
from minerva_acme.agents import mpo

from . import reference, reference_memory
from .test_reference_step import (
    CONFIG,
    HIGH,
    LOW,
    Case,
    check_steps,
    randomised,
    spec,
)

pytestmark = pytest.mark.promise("A learner step equals its paper's")

__all__ = ["spec"]

BURN_IN, SIZE = 2, 7

WITH_MEMORY = dataclasses.replace(
    CONFIG, memory="lstm", memory_size=SIZE, burn_in=BURN_IN, sequence_length=4, critic_loss_steps="all"
)

# A masked row before the first learned step lies before the beginning of the episode, or is its boundary.
MASKS = [
    [1, 1, 1, 1, 1, 1],
    [0, 0, 1, 1, 1, 1],
    [0, 1, 1, 1, 1, 1],
    [1, 0, 1, 1, 0, 0],
    [1, 1, 1, 0, 1, 1],
    [0, 0, 1, 0, 0, 0],
    [1, 1, 0, 1, 1, 0],
    [1, 1, 1, 1, 1, 1],
]


def split(modules):
    """The learner's modules as the reference has them: the encoder's weights beside the critic's."""
    parts = {name: modules[name] for name in ("duals", "temperature_floor")}
    for prefix in ("", "target_"):
        acting, critic = modules[f"{prefix}policy"], modules[f"{prefix}critic"]
        parts[f"{prefix}policy"] = {
            name.removeprefix("policy."): x for name, x in acting.items() if name.startswith("policy.")
        }
        memory = {name: x for name, x in acting.items() if not name.startswith("policy.")}
        parts[f"{prefix}critic"] = {**critic, **memory}
    return parts


def joined(parts):
    """The inverse of `split`."""
    modules = {name: parts[name] for name in ("duals", "temperature_floor")}
    for prefix in ("", "target_"):
        critic = parts[f"{prefix}critic"]
        memory = {name: x for name, x in critic.items() if "rnn." in name}
        policy = {f"policy.{name}": x for name, x in parts[f"{prefix}policy"].items()}
        modules[f"{prefix}policy"] = {**memory, **policy}
        modules[f"{prefix}critic"] = {name: x for name, x in critic.items() if name not in memory}
    return modules


def randomised_memory(parts, seed=1):
    """Other weights of the memory: so large that a step is still felt after several others."""
    generator = torch.Generator().manual_seed(seed)
    parts = copy.deepcopy(parts)
    for name, x in parts["target_critic"].items():
        if "rnn." in name:
            target = torch.randn(x.shape, generator=generator) / (x.shape[-1] ** 0.5 if x.ndim > 1 else 3.0)
            parts["target_critic"][name] = target
            parts["critic"][name] = target + 0.1 * torch.randn(x.shape, generator=generator)
        elif name.endswith("running_mean"):  # or no unit behind a batch norm would be active
            for prefix in ("", "target_"):
                parts[f"{prefix}critic"][name] -= 0.7
    return parts


def make_trajectory(parts, config, seed):
    """Random sequences of a behaviour around the target policy; what masked rows hold is random, too."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.tensor(MASKS, dtype=torch.float32)
    batch_size, length = mask.shape
    num_parts = {"lstm": 2, "gru": 1}[config.memory]
    bare = types.Trajectory(
        observation=torch.randn(batch_size, length + 1, 3, generator=generator),
        action=(),
        reward=torch.randn(batch_size, length, generator=generator),
        discount=torch.tensor([1.0, 1.0, 1.0, 0.6, 0.0])[torch.randint(5, mask.shape, generator=generator)],
        mask=mask,
        state=tuple(
            torch.rand(batch_size, SIZE, generator=generator) * 1.6 - 0.8
            for _ in range(num_parts if config.stored_state else 0)
        ),
    )
    features = torch.stack(
        [
            reference_memory.remembered(
                parts["target_critic"],
                bare.observation[b],
                tuple(part[b] for part in bare.state) or (torch.zeros(SIZE),) * num_parts,
                [False, *(mask[b] == 0)],
                0,
                config.memory,
            )
            for b in range(batch_size)
        ]
    )
    mean, stddev = reference.policy_of(parts["target_policy"], features[:, :-1])
    behaviour = torch.distributions.Normal(
        mean + 0.4 * stddev * torch.randn(mean.shape, generator=generator),
        (0.7 + 0.8 * torch.rand(mean.shape, generator=generator)) * stddev,
    )
    raw_action = behaviour.mean + behaviour.stddev * torch.randn(mean.shape, generator=generator)
    return bare._replace(
        action=raw_action.clamp(torch.tensor(LOW), torch.tensor(HIGH)),
        extras=mpo.BehaviourExtras(
            log_prob=behaviour.log_prob(raw_action).sum(dim=-1), raw_action=raw_action
        ),
    )


class MemoryCase(Case):
    """A learner with a memory and references in the same state."""

    reference_class = reference_memory.Reference

    def randomised(self, modules):
        return randomised_memory(randomised(split(modules)))

    def make_trajectory(self, config, seed):
        return make_trajectory(self.before, config, seed)

    def as_learned(self, modules):
        return joined(modules)

    def learned(self):
        return split(super().learned())


OPTIONS = {
    "LSTM": {},
    "GRU": {"memory": "gru", "critic_target": "n_step"},
    "no burn-in": {"burn_in": 0, "sequence_length": 6, "target_rate": 0.2},
    "SimBa": {"torso": "simba", "weight_decay": 0.7, "critic_target": "one_step", "m_steps": 2},
    "batch norm": {"critic_torso": "batch_norm", "max_grad_norm": 0.5},
    "from zeros": {"stored_state": False},
    "policy in all states": {"policy_loss_steps": "all", "action_penalty": True, "m_steps": 2},
}


@pytest.mark.parametrize("overrides", OPTIONS.values(), ids=OPTIONS)
def test_steps_are_those_of_the_reference(spec, overrides):
    check_steps(spec, dataclasses.replace(WITH_MEMORY, **overrides), MemoryCase)
