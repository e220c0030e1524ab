"""Agents over replay act by arrays: what they say is what their modules say."""

import dataclasses

import numpy as np
import pytest
import torch
import tree

from minerva_acme import specs
from minerva_acme.acceleration import acting
from minerva_acme.agents import bc, dqn, off_policy, registry, sac
from tests.fields import of_fields

SIZE = 5


def make_spec(actions):
    return specs.EnvironmentSpec(
        observations=specs.Array((SIZE,), np.float32, name="observation"),
        actions=actions,
        rewards=specs.Array((), np.float32, name="reward"),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
    )


CONTINUOUS = make_spec(specs.BoundedArray((3,), np.float32, [-1.0, -2.0, 0.0], [1.0, 1.5, 0.5]))
DISCRETE = make_spec(specs.DiscreteArray(4))

CRITIC = {"critic_layer_sizes": (16, 8)}
POLICY = {"policy_layer_sizes": (16, 8)}
AGENTS = {
    **{
        entry.title: (
            entry.builder,
            entry.config(**of_fields(entry.config, POLICY) or CRITIC),
            DISCRETE if entry.builder.takes_actions == "discrete" else CONTINUOUS,
        )
        for entry in registry.AGENTS.values()
        if issubclass(entry.builder, off_policy.TransitionBuilder)
    },
    "DQN, not dueling": (dqn.DQNBuilder, dqn.DQNConfig(**CRITIC, dueling=False, torso="relu"), DISCRETE),
    "DQN, SimBa": (dqn.DQNBuilder, dqn.DQNConfig(critic_layer_sizes=(8, 8), torso="simba"), DISCRETE),
    "DQN, smallest of two": (
        dqn.DQNBuilder,
        dqn.DQNConfig(**CRITIC, num_critics=2, critic_ensemble="min"),
        DISCRETE,
    ),
    "SAC, ReLU": (sac.SACBuilder, sac.SACConfig(**POLICY, torso="relu"), CONTINUOUS),
    "BC, discrete": (bc.BCBuilder, bc.BCConfig(**POLICY), DISCRETE),
}


def make(name, **changes):
    """A builder, and a module far from what its weights are initially."""
    kind, config, spec = AGENTS[name]
    builder = kind(dataclasses.replace(config, **changes))
    generator = torch.Generator().manual_seed(0)
    networks = builder.make_networks(spec, generator)
    module = getattr(networks, builder.policy_variables[0]).requires_grad_(False)
    for parameter in module.parameters():
        parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return builder, networks, module


def observations(num_rows, scale=1.0):
    return scale * np.random.default_rng(1).standard_normal((num_rows, SIZE), np.float32)


def tensors(output):
    return [leaf for leaf in tree.flatten(output) if isinstance(leaf, torch.Tensor)]


def rules(output):
    """How the critics of an ensemble are combined, where it is one."""
    return [leaf for leaf in tree.flatten(output) if isinstance(leaf, str)]


@pytest.mark.parametrize(("num_rows", "scale"), [(1, 1.0), (3, 0.0), (3, 100.0)])
@pytest.mark.parametrize("name", AGENTS)
def test_arrays_say_what_the_module_says(name, num_rows, scale, said):
    _, _, module = make(name)
    call = acting.Acting(module, torch.Generator())
    rows = observations(num_rows, scale)
    kept = rows.copy()
    found, expected = call(rows), module(torch.from_numpy(rows.copy()))
    assert type(found) is type(expected)
    assert rules(found) == rules(expected)
    assert len(tensors(found)) == len(tensors(expected)) > 0
    for tensor, other in zip(tensors(found), tensors(expected), strict=True):
        torch.testing.assert_close(tensor, other, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(rows, kept)
    assert said() == ["acting: arrays"]


@pytest.mark.parametrize("name", AGENTS)
def test_policies_act_as_without_acceleration_also_on_new_weights(name):
    policies = []
    for mode in ("auto", "off"):
        builder, networks, module = make(name, acceleration=mode)
        spec = AGENTS[name][2]
        policy = builder.make_policy(networks, spec, torch.Generator().manual_seed(5))
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.mul_(-1.0)
        policy.set_variables([{key: value.numpy() for key, value in module.state_dict().items()}])
        policies.append(policy)
    rows = observations(64)
    by_arrays, by_module = (policy.batch(rows).action for policy in policies)
    assert by_arrays.dtype == by_module.dtype
    np.testing.assert_allclose(by_arrays, by_module, atol=1e-4)


def test_a_module_that_is_not_known_acts_by_torch(said):
    _, _, module = make("DQN", critic_head="c51", vmin=-1.0, vmax=1.0)
    call = acting.Acting(module, torch.Generator())
    output = call(observations(2))
    assert not any(tensor.requires_grad for tensor in tensors(output))
    assert said() == ["acting: torch: a Critic, or its head, is not supported"]


def test_a_module_with_hooks_acts_by_torch(said):
    _, _, module = make("TD3")
    calls = []
    module.policy[0][0].register_forward_hook(lambda *_: calls.append(1))
    acting.Acting(module, torch.Generator())(observations(1))
    assert calls == [1]
    assert said() == ["acting: torch: Linear has hooks"]


def test_nests_of_observations_act_by_torch(said):
    spec = DISCRETE._replace(
        observations={"a": specs.Array((2,), np.float32), "b": specs.Array((3,), np.float32)}
    )
    builder = dqn.DQNBuilder(AGENTS["DQN"][1])
    networks = builder.make_networks(spec, torch.Generator().manual_seed(0))
    call = acting.Acting(networks.q_network, torch.Generator())
    rows = {"a": np.ones((2, 2), np.float32), "b": np.ones((2, 3), np.float32)}
    assert tensors(call(rows))[0].shape[:2] == (2, 4)
    assert said() == ["acting: torch: NestEncoder is not supported"]
