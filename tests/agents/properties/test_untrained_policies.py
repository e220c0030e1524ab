"""Untrained policies of all agents start inside the bounds of actions, with any torso and observations."""

import copy
import dataclasses
import typing

import numpy as np
import pytest
import torch

from minerva_acme import distributions, networks, specs
from minerva_acme.agents import registry

from .. import table

NUM_ROWS, SIZE, NUM_DIMENSIONS = 512, 17, 6
OBSERVATIONS = {"normal": (0.0, 1.0), "of a thousand": (1e3, 1e3)}

# ReLU layers are as large as what they see, and such inputs must be normalised: networks.ReLUMLP says so.
TOO_LARGE = ("relu", "of a thousand")


def configs(agent):
    """The configs of an agent, by preset and torso."""
    for preset, config in registry.AGENTS[agent].presets.items():
        hint = typing.get_type_hints(type(config)).get("torso", str)
        for torso in typing.get_args(hint):
            yield preset, with_torso(config, torso), torso


def with_torso(config, torso):
    """The config with a torso of small layers, as many as it has."""
    names = {field.name for field in dataclasses.fields(config)}
    small = {name: (64,) * len(getattr(config, name)) for name in names if name.endswith("layer_sizes")}
    small |= {name: 64 for name in names if name == "memory_size"}
    return dataclasses.replace(config, torso=torso, **small)


def spec_of(objectives=()):
    scalar = specs.Array((), np.float32)
    return specs.EnvironmentSpec(
        observations=specs.Array((SIZE,), np.float32, name="observation"),
        actions=specs.BoundedArray((NUM_DIMENSIONS,), np.float32, -1.0, 1.0, name="action"),
        rewards={name: scalar for name in objectives} or scalar,
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0),
    )


def untrained(agent, config):
    """The module of an untrained policy."""
    builder = registry.AGENTS[agent].builder(config)
    generator = torch.Generator().manual_seed(0)
    nets = builder.make_networks(spec_of(getattr(config, "objectives", ())), generator)
    return builder.make_policy(nets, spec_of(), generator, evaluation=True).module


@torch.no_grad()
def output_of(module, rows):
    """Returns a module's output for rows, after its running statistics were updated with them."""
    module = copy.deepcopy(module)
    for part in module.modules():
        if isinstance(part, networks.RunningNorm):
            part.update(rows)
    if networks.memory_of(module) is not None:
        features, _ = module.remember(rows, module.memory.initial_state(len(rows)))
        return networks.policy_of(module.without_memory())(features)
    return networks.policy_of(module)(rows)


def shares(output):
    """The share of means beyond the bounds, and of clipped samples beyond those of a mean of 0."""
    if isinstance(output, torch.Tensor):  # actions, of which none should lie near a bound
        return (output.abs() > 0.9).float().mean().item(), 0.0
    if isinstance(output, distributions.SquashedGaussian):
        return (output.raw.mean.tanh().abs() > 0.9).float().mean().item(), 0.0
    mean, stddev = output.mean, output.log_std.exp()
    beyond = (mean.abs() > 1.0).float().mean()
    normal = torch.special.ndtr
    clipped = normal((-1.0 - mean) / stddev) + normal((mean - 1.0) / stddev)
    return beyond.item(), (clipped - 2.0 * normal(-1.0 / stddev)).mean().item()


@pytest.mark.parametrize("agent", [name for name in registry.AGENTS if name not in table.DISCRETE])
def test_untrained_means_lie_inside_the_bounds(agent):
    for preset, config, torso in configs(agent):
        module = untrained(agent, config)
        for observations, (offset, scale) in OBSERVATIONS.items():
            if (torso, observations) == TOO_LARGE:
                continue
            rows = offset + scale * torch.randn(NUM_ROWS, SIZE, generator=torch.Generator().manual_seed(1))
            beyond, clipped = shares(output_of(module, rows))
            assert beyond < 0.01 and clipped < 0.05, (preset, torso, observations)
