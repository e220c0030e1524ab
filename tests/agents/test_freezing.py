"""Frozen parameters stay as they are in every agent, and the rest of the network is trained."""

import pytest
import torch
from torch import nn

from minerva_acme import acceleration, testing
from minerva_acme.agents import registry

from . import table

pytestmark = pytest.mark.promise("Frozen parameters do not change")

OPTIMIZERS = {
    "Adam": None,  # The agent's own.
    "AdamW": lambda groups: acceleration.AdamW(
        [{**group, "weight_decay": 0.1} for group in groups], eps=1e-8
    ),
    "torch's Adam": lambda groups: torch.optim.Adam(groups, weight_decay=0.1),
    "SGD": lambda groups: torch.optim.SGD(groups, momentum=0.9, weight_decay=0.1),
}


# One agent of each kit: the others hand their optimisers the same groups.
KITS = ("mpo", "ppo", "sac", "dqn")


def freeze_first_layers(networks):
    """Freezes the first layer of each torso; targets are made before or after."""
    for module in networks:
        linears = [part for part in module.modules() if isinstance(part, nn.Linear)]
        if linears:
            linears[0].requires_grad_(False)


def make(name, *, freeze=freeze_first_layers, optimizer="Adam", acceleration="auto"):
    """A learner whose networks were frozen, if at all, before it was made."""
    scene = table.Scene(name, {"acceleration": acceleration})
    builder = scene.builder()
    if OPTIMIZERS[optimizer] is not None:
        builder.make_optimizer = lambda name, groups: OPTIMIZERS[optimizer](groups)
    networks = scene.networks(builder)
    freeze([networks] if isinstance(networks, nn.Module) else networks)
    return scene.make(builder=builder, parts={"networks": networks})[0]


def parameters_of(learner):
    """Those of trained networks, by name."""
    return {
        name: parameter
        for name, parameter in table.weights(learner).items()
        if not name.startswith(("target", "duals"))
    }


def train(learner, num_steps=2):
    """Makes two learner steps, as many as TD3's policy needs; returns what moved, and what was frozen."""
    parameters = parameters_of(learner)
    before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    frozen = {name: not parameter.requires_grad for name, parameter in parameters.items()}
    learner.run(num_steps=num_steps)
    assert frozen == {name: not parameter.requires_grad for name, parameter in parameters.items()}
    return {name: not torch.equal(value, before[name]) for name, value in parameters.items()}, frozen


@pytest.mark.parametrize(
    ("name", "optimizer", "acceleration"),
    [
        *((name, "Adam", "auto") for name in registry.AGENTS),
        *((name, "Adam", "off") for name in KITS),
        *((name, other, "auto") for name in KITS for other in OPTIMIZERS if other != "Adam"),
    ],
)
def test_a_frozen_layer_stays_and_the_rest_is_trained(name, optimizer, acceleration):
    moved, frozen = train(make(name, optimizer=optimizer, acceleration=acceleration))
    assert any(frozen.values())
    assert moved == {name: not is_frozen for name, is_frozen in frozen.items()}


@pytest.mark.parametrize("name", KITS)
def test_a_layer_may_be_frozen_and_unfrozen_during_training(name):
    learner = make(name, freeze=lambda networks: None)
    moved, _ = train(learner)
    assert all(moved.values())
    chosen = [key for key in parameters_of(learner) if key.endswith("weight")][::2]
    for is_trained in (False, True):
        for key in chosen:
            parameters_of(learner)[key].requires_grad_(is_trained)
        moved, _ = train(learner)
        assert moved == {key: is_trained or key not in chosen for key in moved}


@pytest.mark.parametrize("name", KITS)
def test_a_network_may_be_frozen_as_a_whole(name):
    moved, _ = train(make(name, freeze=lambda networks: networks[0].requires_grad_(False)))
    assert any(moved.values()) == (name in ("mpo", *table.VECTORS))  # Others have a single network.
    assert not all(moved.values())


@pytest.mark.parametrize("name", KITS)
def test_frozen_layers_are_saved_and_restored_and_training_continues_bit_for_bit(name):
    learner, other = make(name), make(name)
    learner.run(num_steps=2)
    other.run(num_steps=2)  # Its batches are the next ones too.
    for parameter in parameters_of(other).values():
        with torch.no_grad():
            parameter.add_(1.0)
    other.restore(testing.through_a_file(learner.save()))
    train(learner), train(other)
    testing.assert_nests_equal(other.save(), learner.save(), "The restored learner trains as the first does.")


def test_frozen_layers_keep_their_norm_where_weights_are_projected():
    settings = {"torso": "simba", "policy_layer_sizes": (8, 8), "unit_norm_weights": True}
    scene = table.Scene("mpo", settings)
    networks = scene.networks()
    first = next(part for part in networks.critic.modules() if isinstance(part, nn.Linear))
    first.requires_grad_(False).weight.mul_(3.0)
    before = first.weight.clone()
    learner, _ = scene.make(parts={"networks": networks})
    learner.run(num_steps=2)
    assert torch.equal(first.weight, before)
