"""The switch, the log and hooks, through whole agents."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from minerva_acme import learners, networks, testing
from minerva_acme.acceleration import (
    Agreement,
    acting,
    agreement,
    array_ppo,
    choice,
    kernels,
    parallel,
)
from minerva_acme.agents import mpo
from minerva_acme.networks.actor_critic import GaussianHead
from minerva_acme.networks.policy import GaussianPolicy

from . import table
from .mpo import scene as mpo_scene


@pytest.fixture
def small_is_large(monkeypatch):
    """As if this CPU, and any size, were ones that faster ways are for."""
    monkeypatch.setattr(kernels, "uses_onednn", lambda: kernels._onednn_works())
    monkeypatch.setattr(kernels, "MIN_SIZE", 1)
    monkeypatch.setattr(kernels.cpu, "has_avx512", lambda: True)


@pytest.fixture
def two_threads(threads_are_given_back):
    torch.set_num_threads(2)


@pytest.fixture(params=["mpo", "ppo", "vmpo"])  # those that have faster ways of their own
def learner_scene(request):
    return table.Scene(request.param)


def without_acting(lines):
    """Rollouts are collected by a policy, which says of itself how."""
    return [line for line in lines if not line.startswith("acting:")]


@pytest.mark.usefixtures("small_is_large", "two_threads")
def test_off_computes_everything_by_plain_torch(learner_scene, monkeypatch, said):
    batch = learner_scene.make_batch(0)
    for module, name in (
        (kernels, "linear"),
        (acting, "_compile"),
        (array_ppo, "make_step"),
        (parallel, "_pool"),
    ):
        monkeypatch.setattr(module, name, lambda *_, name=name, **__: pytest.fail(f"{name} was called"))
    learner, rows = learner_scene.make([batch], acceleration="off")
    learner.step()
    assert rows[0]["skipped_batches"] == 0
    layers = [layer for module in learner._modules.values() for layer in module.modules()]
    assert not any(isinstance(layer, kernels.Linear) for layer in layers)
    lines = [line for line in without_acting(said()) if not line.startswith("threads:")]
    assert lines and all("acceleration is off" in line for line in lines)


def test_off_acts_by_the_module(agent, continuous_spec, monkeypatch, said):
    monkeypatch.setattr(acting, "_compile", lambda *_: pytest.fail("arrays"))
    builder = agent.builder(acceleration="off")
    generator = torch.Generator().manual_seed(0)
    policy = builder.make_policy(
        builder.make_networks(continuous_spec, generator), continuous_spec, generator
    )
    policy.batch(np.zeros((1, 3), np.float32))
    assert said() == ["acting: torch: acceleration is off"]


@pytest.mark.usefixtures("small_is_large", "two_threads")
@pytest.mark.promise("Switches for fast implementations")
def test_training_with_and_without_acceleration_differs_by_rounding_alone(learner_scene):
    batches = [learner_scene.make_batch(seed) for seed in range(3)]
    states = []
    for mode in ("auto", "off"):
        learner, _ = learner_scene.make(batches, acceleration=mode)
        learner.run(num_steps=3)
        states.append(learner.save()["modules"])
    fast, plain = states
    assert fast.keys() == plain.keys()
    for name in plain:
        assert fast[name].keys() == plain[name].keys()
        for key, expected in plain[name].items():
            torch.testing.assert_close(fast[name][key], expected, rtol=1e-4, atol=2e-5, msg=f"{name}.{key}")


SAYS = {
    "mpo": {"policy", "critic", "target critic", "updates"},
    "ppo": {"network", "PPO's updates"},
    "vmpo": {"network"},
}


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_each_part_of_a_learner_is_said_once_however_many_steps_it_makes(learner_scene, mode, said):
    for _ in range(2):
        learner, _ = learner_scene.make([learner_scene.make_batch(0)] * 3, acceleration=mode)
        learner.run(num_steps=3)
    lines = without_acting(said())
    assert sorted(line.partition(":")[0] for line in lines) == sorted(SAYS[learner_scene.name])


# Agreement of both ways.


def tanh_of_mean(forward):
    def edited(self, features):
        policy = forward(self, features)
        return policy._replace(mean=policy.mean.tanh())

    return edited


@pytest.fixture
def edited(monkeypatch):
    """Formulas as a researcher might edit them: of a policy's mean, and of a torso."""
    for kind in (GaussianPolicy, GaussianHead):
        monkeypatch.setattr(kind, "forward", tanh_of_mean(kind.forward))
    monkeypatch.setattr(
        networks.LayerNormMLP, "forward", lambda self, x: 2.0 * nn.Sequential.forward(self, x)
    )


@pytest.mark.usefixtures("small_is_large", "edited", "said")
def test_an_edited_formula_trains_as_without_acceleration(learner_scene, caplog):
    torso = {} if learner_scene.name == "mpo" else {"torso": "layer_norm"}
    batches = [learner_scene.make_batch(seed) for seed in range(3)]
    caplog.clear()
    states = []
    for mode in ("auto", "off"):
        learner, rows = learner_scene.make(batches, acceleration=mode, **torso)
        learner.run(num_steps=3)
        assert rows[-1]["skipped_batches"] == 0
        states.append(learner.save()["modules"])
    for name, plain in states[1].items():
        for key, expected in plain.items():
            torch.testing.assert_close(states[0][name][key], expected, rtol=1e-4, atol=2e-5)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    replaced = "PPO's updates: autograd: forward was replaced" in [r.getMessage() for r in caplog.records]
    assert replaced == (learner_scene.name == "ppo")


@pytest.mark.usefixtures("small_is_large")
def test_a_comparison_changes_no_number_of_a_run(learner_scene, monkeypatch):
    batches = [learner_scene.make_batch(seed) for seed in range(4)]
    states = []
    for is_compared in (True, False):
        if not is_compared:
            monkeypatch.setattr(agreement, "_never", lambda *_: True)
            monkeypatch.setattr(Agreement, "settle", lambda *_, **__: pytest.fail("compared"))
        learner, rows = learner_scene.make(batches, acceleration="auto")
        learner.run(num_steps=2)
        learner.restore(testing.through_a_file(learner.save()))
        learner.run(num_steps=2)
        states.append({"state": learner.save(), "rows": [without_time(row) for row in rows]})
    testing.assert_nests_equal(*states, "A comparison left a trace.")


def without_time(row):
    return {name: float(value) for name, value in row.items() if name != "walltime"}


@pytest.mark.usefixtures("small_is_large")
def test_both_ways_are_compared_at_first_and_after_a_restore(learner_scene, monkeypatch):
    settled = []
    settle = Agreement.settle

    def counting(self, *args, **pairs):
        is_settled = settle(self, *args, **pairs)
        if self._part != "acting":  # of the policy that collects rollouts
            settled.append(is_settled)
        return is_settled

    monkeypatch.setattr(Agreement, "settle", counting)
    learner, _ = learner_scene.make([learner_scene.make_batch(seed) for seed in range(4)])
    num_twins = {"mpo": 0, "ppo": 1, "vmpo": 0}[learner_scene.name]
    learner.run(num_steps=2)
    assert settled == [True] * num_twins
    learner.restore(testing.through_a_file(learner.save()))
    learner.run(num_steps=2)
    assert settled == [True] * 2 * num_twins


# Hooks on inner layers.


def hook(network, index, calls, name):
    """Counts the calls of a layer, in every copy of the network."""
    network[index].register_forward_hook(_Counter(calls, name))


class _Counter:
    def __init__(self, calls, name):
        self._calls, self._name = calls, name

    def __deepcopy__(self, memo):
        return self

    def __call__(self, module, args, output):
        self._calls.append(self._name)


INNER = [("layer_norm", 0), ("layer_norm", 1), ("tanh", 2), ("layer_norm", 3)]


@pytest.mark.parametrize(("torso", "index"), INNER)
@pytest.mark.usefixtures("small_is_large")
def test_a_hook_on_an_inner_layer_fires_in_training(
    agent, make_learner, make_rollout, continuous_spec, torso, index, said
):
    builder = agent.builder(torso=torso, policy_layer_sizes=(8, 8), value_layer_sizes=(8, 8))
    behaviour = builder.make_networks(continuous_spec, torch.Generator().manual_seed(0))
    rollout = make_rollout(builder, behaviour, continuous_spec)
    learner, network, _ = make_learner(builder, continuous_spec, [rollout])
    calls = []
    hook(network.policy_torso, index, calls, "policy")
    hook(network.value_torso, index, calls, "value")
    learner.step()
    assert calls.count("policy") >= 2 and calls.count("value") >= 2
    assert any(line.startswith("PPO's updates: autograd: ") and "has hooks" in line for line in said())


@pytest.mark.parametrize(("torso", "index"), INNER)
def test_a_hook_on_an_inner_layer_fires_in_acting_which_is_left_to_torch_then(
    ppo_agent, continuous_spec, torso, index, said
):
    builder = ppo_agent.builder(torso=torso, policy_layer_sizes=(8, 8), value_layer_sizes=(8, 8))
    generator = torch.Generator().manual_seed(0)
    network = builder.make_networks(continuous_spec, generator)
    calls = []
    hook(network.policy_torso, index, calls, "policy")
    kind = type(network.policy_torso[index]).__name__
    for evaluation in (False, True):
        policy = builder.make_policy(network, continuous_spec, generator, evaluation=evaluation)
        calls.clear()
        policy.batch(np.zeros((2, 3), np.float32))
        assert calls == ["policy"]
    assert said() == [f"acting: torch: {kind} has hooks"]


@pytest.mark.parametrize("index", [0, 1, 2, 3, 4])
@pytest.mark.usefixtures("small_is_large")
def test_hooks_on_inner_layers_fire_in_every_part_of_mpo(continuous_spec, index, said):
    config = mpo_scene.SMALL
    networks = mpo.make_networks(continuous_spec, config, torch.Generator().manual_seed(0))
    calls = []
    hook(networks.policy.torso, index, calls, "policy")
    hook(networks.critic.torso, index, calls, "critic")
    batch = mpo_scene.make_trajectory()
    learner, _ = mpo_scene.make_learner(continuous_spec, mpo_scene.repeat(batch), config, networks=networks)
    due = learners.Batch(batch, 1.0, due=frozenset(learner.losses))
    mpo_scene.losses_of(learner).estimate(learner.networks, due, learner.generator)
    assert calls.count("policy") == 1 and calls.count("critic") == 3  # by the target networks
    calls.clear()
    learner.step()
    assert calls.count("policy") == 3 and calls.count("critic") == 4
    calls.clear()
    policy = mpo.MPOBuilder(config).make_policy(networks, continuous_spec, torch.Generator().manual_seed(0))
    policy(np.zeros(3, np.float32))
    assert calls == ["policy"]
    assert said()[-1] == f"acting: torch: {type(networks.policy.torso[index]).__name__} has hooks"


@pytest.mark.usefixtures("small_is_large")
def test_a_hook_changes_what_mpo_computes(continuous_spec):
    """A critic whose hook adds 1 to a layer is that critic everywhere."""
    losses = []
    for hooked in (False, True):
        networks = mpo.make_networks(continuous_spec, mpo_scene.SMALL, torch.Generator().manual_seed(0))
        if hooked:
            networks.critic.torso[3].register_forward_hook(lambda module, args, output: output + 1.0)
        else:
            with torch.no_grad():
                networks.critic.torso[3].bias += 1.0
        learner, rows = mpo_scene.make_learner(
            continuous_spec,
            mpo_scene.repeat(mpo_scene.make_trajectory()),
            dataclasses.replace(mpo_scene.SMALL),
            networks=networks,
        )
        learner.step()
        losses.append(
            [float(rows[0][name]) for name in ("loss/critic", "q/min", "q/max", "grad_norm/critic")]
        )
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(("name", "module"), [("sac", "critic"), ("mpo", "critic"), ("ppo", "network")])
@pytest.mark.usefixtures("two_threads")
def test_one_thread_makes_a_step_if_its_largest_forward_pass_is_small(name, module, large, monkeypatch):
    scene = table.Scene(name)
    batch = scene.make_batch(0)
    learner, _ = scene.make([batch], acceleration="off")
    rows = learner.config.minibatch_size if name == "ppo" else batch.discount.numel()
    size = rows * sum(parameter.numel() for parameter in learner._modules[module].parameters())
    monkeypatch.setattr(choice, "_SMALL_UPDATE", size + (not large))
    seen, update = [], learner._update_targets
    monkeypatch.setattr(
        learner, "_update_targets", lambda *to: seen.append(torch.get_num_threads()) or update(*to)
    )
    learner.step()
    assert seen == [1 + large] and torch.get_num_threads() == 2
