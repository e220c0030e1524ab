"""The losses of DQN, TD3 and SAC on arrays: values, gradients, priorities and draws are those of autograd."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from minerva_acme import counting, learners, loggers, specs, types
from minerva_acme.acceleration import array_layers, array_losses, kernels
from minerva_acme.agents import dqn, sac, td3

B, SIZE = 24, 5
SMALL: dict[str, Any] = {"batch_size": B, "critic_layer_sizes": (16, 8)}
ACTOR_CRITIC = SMALL | {"policy_layer_sizes": (16, 8)}


def make_spec(actions):
    return specs.EnvironmentSpec(
        observations=specs.Array((SIZE,), np.float32, name="observation"),
        actions=actions,
        rewards=specs.Array((), np.float32, name="reward"),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
    )


CONTINUOUS = make_spec(specs.BoundedArray((3,), np.float32, [-1.0, -2.0, 0.0], [1.0, 1.5, 0.5]))
DISCRETE = make_spec(specs.DiscreteArray(4))


class Scene(NamedTuple):
    """An agent's settings."""

    builder: type[Any]
    config: Any
    spec: specs.EnvironmentSpec


SCENES = {
    "DQN": Scene(dqn.DQNBuilder, dqn.DQNConfig(**SMALL, target_update_period=3), DISCRETE),
    "DQN, plain": Scene(
        dqn.DQNBuilder, dqn.DQNConfig(**SMALL, torso="relu", double=False, dueling=False), DISCRETE
    ),
    "DQN, double": Scene(dqn.DQNBuilder, dqn.DQNConfig(**SMALL, dueling=False), DISCRETE),
    "DQN, clipped errors": Scene(dqn.DQNBuilder, dqn.DQNConfig(**SMALL, max_td_error=0.5), DISCRETE),
    "DQN, smallest of three": Scene(
        dqn.DQNBuilder, dqn.DQNConfig(**SMALL, num_critics=3, critic_ensemble="min"), DISCRETE
    ),
    "DQN, mean of two": Scene(
        dqn.DQNBuilder, dqn.DQNConfig(**SMALL, num_critics=2, critic_ensemble="mean"), DISCRETE
    ),
    "TD3": Scene(td3.TD3Builder, td3.TD3Config(**ACTOR_CRITIC), CONTINUOUS),
    "TD3, ReLU": Scene(td3.TD3Builder, td3.TD3Config(**ACTOR_CRITIC, torso="relu"), CONTINUOUS),
    "SAC": Scene(sac.SACBuilder, sac.SACConfig(**ACTOR_CRITIC), CONTINUOUS),
    "SAC, ReLU": Scene(sac.SACBuilder, sac.SACConfig(**ACTOR_CRITIC, torso="relu"), CONTINUOUS),
    "SAC, mean of three": Scene(
        sac.SACBuilder, sac.SACConfig(**ACTOR_CRITIC, num_critics=3, critic_ensemble="mean"), CONTINUOUS
    ),
}


@pytest.fixture(params=list(SCENES))
def scene(request):
    return SCENES[request.param]


def objectives(scene, **changes):
    return scene.builder(dataclasses.replace(scene.config, **changes)).make_objectives(scene.spec)


def make_networks(scene, seed=0):
    """Far from what weights are initially, and target networks that differ."""
    generator = torch.Generator().manual_seed(seed)
    nets = scene.builder(scene.config).make_networks(scene.spec, generator)
    with torch.no_grad():
        for module in nets:
            for parameter in module.parameters():
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
        if isinstance(nets, sac.SACNetworks):
            # The first dimension's log-std is beyond what it is clamped to, in some samples.
            nets.policy.policy.policy.log_std_head.bias += torch.tensor([2.5, 0.0, -1.0])
    return nets


def make_batch(scene, weights=1.0, seed=1):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    if scene.spec is DISCRETE:
        action = torch.randint(4, (B,), generator=generator)
    else:
        action = 2.0 * normal(B, 3)  # many beyond the bounds, to which critics clip them
    data = types.Transition(
        normal(B, SIZE), action, normal(B), torch.rand(B, generator=generator), normal(B, SIZE), ()
    )
    return learners.Batch(data, weights)


def random_weights():
    weights = torch.rand(B, generator=torch.Generator().manual_seed(2))
    weights[3] = 0.0
    return weights


def trained_by(nets, name, objective):
    return [p for part in objective.modules or [name] for p in getattr(nets, part).parameters()]


def assert_same(found, expected):
    torch.testing.assert_close(torch.as_tensor(found), torch.as_tensor(expected), rtol=5e-5, atol=5e-6)


def assert_twins(scene, batch):
    nets = make_networks(scene)
    for name, plain in objectives(scene, acceleration="off").items():
        generators = [torch.Generator().manual_seed(7) for _ in range(2)]
        expected = plain.loss(nets, batch, generators[0])
        parameters = trained_by(nets, name, plain)
        gradients = torch.autograd.grad(expected.value, parameters)
        found = objectives(scene)[name].loss(nets, batch, generators[1])
        assert torch.equal(generators[0].get_state(), generators[1].get_state())
        assert not found.value.requires_grad and found.gradients is not None
        assert_same(found.value, expected.value.detach())
        assert found.metrics.keys() == expected.metrics.keys()
        for key, value in expected.metrics.items():
            assert_same(found.metrics[key], value)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            assert gradient.any()
            assert_same(found.gradients[parameter], gradient)
        assert (found.priorities is None) == (expected.priorities is None)
        if expected.priorities is not None:
            assert_same(found.priorities, expected.priorities)


@pytest.mark.parametrize("weighs", [False, True])
def test_losses_and_gradients_are_those_of_autograd(scene, weighs):
    assert_twins(scene, make_batch(scene, random_weights() if weighs else 1.0))


def test_so_are_those_of_large_networks(scene, monkeypatch):
    monkeypatch.setattr(kernels, "MIN_SIZE", 1)
    monkeypatch.setattr(array_layers, "_MANY", 1)
    assert_twins(scene, make_batch(scene))


class Sample(NamedTuple):
    """A sample as a dataset gives it."""

    data: Any


class _Rows(loggers.Logger):
    def __init__(self):
        self.rows = []

    def write(self, values):
        self.rows.append(values)

    def close(self):
        pass


def train(scene, num_steps, **changes):
    """Learner steps on the same batches; returns the networks and the logged rows."""
    builder = scene.builder(dataclasses.replace(scene.config, **changes))
    nets = make_networks(scene)
    rows = _Rows()
    learner = builder.make_learner(
        networks=nets,
        dataset=(Sample(make_batch(scene, seed=seed).data) for seed in range(num_steps)),
        client=None,
        spec=scene.spec,
        counter=counting.Counter(),
        logger=rows,
        generator=torch.Generator().manual_seed(3),
        device=torch.device("cpu"),
    )
    for _ in range(num_steps):
        learner.step()
    return nets, rows.rows


def test_whole_learners_stay_together_for_twenty_steps(scene):
    (nets, rows), (plain_nets, plain_rows) = train(scene, 20), train(scene, 20, acceleration="off")
    for module, plain in zip(nets, plain_nets, strict=True):
        for value, expected in zip(module.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(value, expected, rtol=1e-3, atol=1e-4)
    assert [row.keys() for row in rows] == [row.keys() for row in plain_rows]


@pytest.mark.parametrize("name", ["DQN", "TD3", "SAC"])
def test_a_batch_that_is_not_finite_is_skipped_without_a_warning_of_numpy(name, recwarn):
    scene = SCENES[name]
    batch = make_batch(scene)
    with torch.no_grad():
        batch.data.reward[0] = torch.inf
        batch.data.observation[1] = 1e30
    nets = make_networks(scene)
    for objective, generator in ((o, torch.Generator()) for o in objectives(scene).values()):
        objective.loss(nets, batch, generator)
    assert not recwarn.list


# Where autograd computes, and what is said of it.


def loss_of(scene, nets, batch=None):
    return {
        name: objective.loss(nets, batch or make_batch(scene), torch.Generator().manual_seed(0))
        for name, objective in objectives(scene).items()
    }


def test_the_way_that_is_taken_is_said(said):
    loss_of(SCENES["TD3"], make_networks(SCENES["TD3"]))
    way = "arrays, the gradient written down"
    assert said() == [f"TD3's critic: {way}", f"TD3's policy: {way}"]


def test_off_is_said_too(said):
    objectives(SCENES["DQN"], acceleration="off")
    assert said() == ["DQN's updates: autograd: acceleration is off"]


UNKNOWN = {
    "SimBa": dqn.DQNConfig(**(SMALL | {"critic_layer_sizes": (8, 8)}), torso="simba"),
    "CategoricalCriticHead": dqn.DQNConfig(**SMALL, critic_head="c51"),
    "MixtureOfGaussiansHead": dqn.DQNConfig(**SMALL, critic_head="mixture", dueling=False),
}


@pytest.mark.parametrize("part", UNKNOWN)
def test_networks_with_other_parts_are_left_to_autograd(part, said):
    scene = Scene(dqn.DQNBuilder, UNKNOWN[part], DISCRETE)
    loss = loss_of(scene, make_networks(scene))["q_network"]
    assert loss.gradients is None and loss.value.requires_grad
    (line,) = said()
    assert line.startswith("DQN's updates: autograd: ") and part in line


def test_a_module_of_ones_own_is_left_to_autograd(said):
    class Mine(nn.Module):
        def __init__(self, network):
            super().__init__()
            self.network = network

        def forward(self, observation):
            return self.network(observation)

        def loss(self, *args):
            return self.network.loss(*args)

    scene = SCENES["DQN"]
    nets = make_networks(scene)
    nets = nets._replace(q_network=Mine(nets.q_network))
    assert loss_of(scene, nets)["q_network"].gradients is None
    assert said() == ["DQN's updates: autograd: Mine is not just EncodedCritic"]


def test_a_hook_that_comes_later_is_called_from_then_on(said):
    scene = SCENES["DQN"]
    nets = make_networks(scene)
    loss = objectives(scene)["q_network"].loss
    calls = []
    assert loss(nets, make_batch(scene), torch.Generator()).gradients is not None
    hook = (
        nets.q_network.critic.members[0]
        .value.torso[0]
        .register_forward_hook(lambda *_: calls.append("module"))
    )
    assert loss(nets, make_batch(scene), torch.Generator()).gradients is None
    assert calls
    hook.remove()
    assert loss(nets, make_batch(scene), torch.Generator()).gradients is not None
    parameter = next(nets.q_network.parameters())
    parameter.register_hook(lambda gradient: calls.append("parameter"))
    loss(nets, make_batch(scene), torch.Generator()).value.backward()
    assert calls[-1] == "parameter"
    assert "DQN's updates: autograd: a module or a parameter has hooks" in said()


def test_large_batches_are_left_to_autograd(monkeypatch, said):
    scene = SCENES["SAC"]
    monkeypatch.setattr(array_losses, "_MOST_OF_ARRAYS", 1000)
    assert all(loss.gradients is None for loss in loss_of(scene, make_networks(scene)).values())
    assert all(line.endswith("autograd: minibatch and network are large") for line in said())


def test_networks_in_double_precision_are_left_to_autograd():
    scene = SCENES["DQN"]
    nets = make_networks(scene)
    for module in nets:
        module.double()
    batch = make_batch(scene)
    batch = batch._replace(data=types.Transition(*(x.double() for x in batch.data[:-1]), ()))
    loss = loss_of(scene, nets, batch._replace(data=batch.data._replace(action=batch.data.action.long())))
    assert loss["q_network"].gradients is None and loss["q_network"].value.dtype == torch.float64


def test_a_temperature_of_another_kind_is_left_to_autograd(said):
    class Softplus(nn.Module):
        def __init__(self):
            super().__init__()
            self.raw = nn.Parameter(torch.zeros(()))

        @property
        def log(self):
            return nn.functional.softplus(self.raw).log()

        def forward(self):
            return nn.functional.softplus(self.raw)

    scene = SCENES["SAC"]
    nets = make_networks(scene)._replace(temperature=Softplus())
    losses = loss_of(scene, nets)
    assert losses["critic"].gradients is not None and losses["policy"].gradients is None
    line = "SAC's policy: autograd: the temperature has other parameters than its logarithm"
    assert line in said()
