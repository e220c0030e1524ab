"""Frozen parameters stay as they are in every agent, and the rest of the network is trained."""

import dataclasses
import itertools

import pytest
import torch
from torch import nn

from minerva_acme import acceleration, testing
from minerva_acme.agents import mpo

from . import transition_scene
from .conftest import PPO, VMPO
from .mpo import scene as mpo_scene

AGENTS = ["mpo", "ppo", "vmpo", *transition_scene.AGENTS]
OPTIMIZERS = {
    "Adam": None,  # The agent's own.
    "AdamW": lambda groups: acceleration.AdamW(
        [{**group, "weight_decay": 0.1} for group in groups], eps=1e-8
    ),
    "torch's Adam": lambda groups: torch.optim.Adam(groups, weight_decay=0.1),
    "SGD": lambda groups: torch.optim.SGD(groups, momentum=0.9, weight_decay=0.1),
}


def freeze_first_layers(networks):
    """Freezes the first layer of each torso; targets are made before or after."""
    for module in networks:
        linears = [part for part in module.modules() if isinstance(part, nn.Linear)]
        if linears:
            linears[0].requires_grad_(False)


@pytest.fixture
def make(make_learner, make_rollout, continuous_spec):
    """Makes a small learner of an agent, whose networks were frozen, if at all, before it was made."""

    def make_agents_learner(name, *, freeze=freeze_first_layers, optimizer="Adam", acceleration="auto"):
        make_own = OPTIMIZERS[optimizer]

        def with_optimizer(builder):
            if make_own is not None:
                builder.make_optimizer = lambda name, groups: make_own(groups)
            return builder

        if name == "mpo":
            config = dataclasses.replace(mpo_scene.SMALL, acceleration=acceleration)
            networks = mpo.make_networks(continuous_spec, config, torch.Generator().manual_seed(0))
            freeze(networks)
            batches = (mpo_scene.Sample(mpo_scene.make_trajectory(seed=seed)) for seed in itertools.count())
            own = {} if make_own is None else {"make_optimizer": lambda name, groups: make_own(groups)}
            return mpo_scene.make_learner(continuous_spec, batches, config, networks=networks, **own)[0]
        if name in ("ppo", "vmpo"):
            builder = with_optimizer({"ppo": PPO, "vmpo": VMPO}[name].builder(acceleration=acceleration))
            make_plainly = builder.make_networks

            def make_networks(*args):
                network = make_plainly(*args)
                freeze([network])
                return network

            builder.make_networks = make_networks
            return make_learner(builder, continuous_spec)[0]
        agent = transition_scene.AGENTS[name]
        builder = with_optimizer(agent.make(acceleration=acceleration))
        networks = builder.make_networks(agent.spec, torch.Generator().manual_seed(0))
        freeze(networks)
        return transition_scene.make_learner(builder, agent.spec, networks=networks)[0]

    return make_agents_learner


def parameters_of(learner):
    """Those of trained networks, by name."""
    return {
        f"{name}.{key}": parameter
        for name, module in learner._modules.items()
        if not name.startswith("target") and name != "duals"
        for key, parameter in module.named_parameters()
    }


def train(learner, num_steps=3):
    """Makes learner steps; returns whether each parameter moved, and whether it was frozen."""
    parameters = parameters_of(learner)
    before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    frozen = {name: not parameter.requires_grad for name, parameter in parameters.items()}
    learner.run(num_steps=num_steps)
    assert frozen == {name: not parameter.requires_grad for name, parameter in parameters.items()}
    return {name: not torch.equal(value, before[name]) for name, value in parameters.items()}, frozen


@pytest.mark.parametrize("acceleration", ["auto", "off"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", AGENTS)
def test_a_frozen_layer_stays_and_the_rest_is_trained(name, optimizer, acceleration, make):
    moved, frozen = train(make(name, optimizer=optimizer, acceleration=acceleration))
    assert any(frozen.values())
    assert moved == {name: not is_frozen for name, is_frozen in frozen.items()}


@pytest.mark.parametrize("name", AGENTS)
def test_a_layer_may_be_frozen_and_unfrozen_during_training(name, make):
    learner = make(name, freeze=lambda networks: None)
    moved, _ = train(learner)
    assert all(moved.values())
    chosen = [key for key in parameters_of(learner) if key.endswith("weight")][::2]
    for is_trained in (False, True):
        for key in chosen:
            parameters_of(learner)[key].requires_grad_(is_trained)
        moved, _ = train(learner)
        assert moved == {key: is_trained or key not in chosen for key in moved}


@pytest.mark.parametrize("name", AGENTS)
def test_a_network_may_be_frozen_as_a_whole(name, make):
    moved, _ = train(make(name, freeze=lambda networks: networks[0].requires_grad_(False)))
    assert any(moved.values()) == (name not in ("ppo", "vmpo", "dqn"))  # These have a single network.
    assert not all(moved.values())


@pytest.mark.parametrize("name", AGENTS)
def test_frozen_layers_are_saved_and_restored_and_training_continues_bit_for_bit(name, make):
    learner, other = make(name), make(name)
    learner.run(num_steps=2)
    other.run(num_steps=2)  # Its batches are the next ones too.
    for parameter in parameters_of(other).values():
        with torch.no_grad():
            parameter.add_(1.0)
    other.restore(testing.through_a_file(learner.save()))
    train(learner), train(other)
    testing.assert_nests_equal(other.save(), learner.save(), "The restored learner trains as the first does.")


def test_frozen_layers_keep_their_norm_where_weights_are_projected(continuous_spec):
    config = dataclasses.replace(
        mpo_scene.SMALL,
        torso="simba",
        policy_layer_sizes=(8, 8),
        critic_layer_sizes=(8, 8),
        unit_norm_weights=True,
    )
    networks = mpo.make_networks(continuous_spec, config, torch.Generator().manual_seed(0))
    first = next(part for part in networks.critic.modules() if isinstance(part, nn.Linear))
    first.requires_grad_(False).weight.mul_(3.0)
    before = first.weight.clone()
    batches = mpo_scene.repeat(mpo_scene.make_trajectory())
    learner, _ = mpo_scene.make_learner(continuous_spec, batches, config, networks=networks)
    learner.run(num_steps=2)
    assert torch.equal(first.weight, before)
