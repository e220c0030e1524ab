"""The gradient that is written down is the one that autograd finds; whatever it might not be, is refused."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from minerva_acme import networks
from minerva_acme.acceleration import array_actor_critic
from tests.closeness import assert_close_to_norm

M = 32
KINDS = {
    "gaussian": {"action_size": 3},
    "state-dependent deviation": {"action_size": 3, "state_dependent_std": True},
    "one action": {"action_size": 1},
    "categorical": {"num_actions": 5},
    "shared torso": {"action_size": 3, "shared_torso": True},
    "shared torso, categorical": {"num_actions": 2, "shared_torso": True},
    "layer norm": {"action_size": 3, "torso": "layer_norm"},
    "sizes of their own": {"action_size": 2, "layer_sizes": (8, 16, 4), "value_layer_sizes": (32,)},
}


def make_network(**changes):
    arguments = {
        "normalizer": networks.RunningNorm(7),
        "encoder": networks.IdentityEncoder(7),
        "encoder_loss": "both",
        "layer_sizes": (16, 8),
        "value_layer_sizes": (16, 8),
        "torso": "tanh",
        "shared_torso": False,
        "state_dependent_std": False,
        "initial_stddev": 0.7,
        "policy_gain": 0.5,
    }
    return networks.make_actor_critic(**(arguments | changes), generator=torch.Generator().manual_seed(0))


def make_actions(kind, generator):
    if "num_actions" in KINDS[kind]:
        return torch.randint(KINDS[kind]["num_actions"], (M,), generator=generator)
    return torch.randn(M, KINDS[kind]["action_size"], generator=generator)


@pytest.mark.parametrize("d_entropy", [0.0, -0.3])
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_gradient_are_those_of_autograd(kind, d_entropy):
    generator = torch.Generator().manual_seed(1)
    network = make_network(**KINDS[kind])
    observation = torch.randn(M, 7, generator=generator)
    raw_action = make_actions(kind, generator)
    d_log_prob, d_value = torch.randn(2, M, generator=generator)

    policy, value = network.from_normalized(observation)
    log_prob, entropy = policy.log_prob(raw_action), policy.entropy()
    (log_prob @ d_log_prob + entropy.sum() * d_entropy + value @ d_value).backward()

    arrays = array_actor_critic.ArrayActorCritic(network)
    for _ in range(2):  # what was there before is overwritten
        outputs = arrays.forward(observation.numpy(), raw_action.numpy())
        arrays.backward(d_log_prob.numpy(), d_entropy, d_value.numpy())
    for found, expected in zip(outputs, (log_prob, entropy, value), strict=True):
        assert_close_to_norm(found, expected)
    expected = torch.cat([parameter.grad.ravel() for parameter in network.parameters()]).numpy()
    np.testing.assert_allclose(arrays.gradient, expected, rtol=1e-4, atol=2e-5)
    assert arrays.gradient.dtype == arrays.parameters.dtype == np.float32


@pytest.mark.parametrize(("log_std", "moves"), [(-30.0, False), (0.0, True), (3.0, False)])
def test_a_deviation_beyond_its_bounds_has_no_gradient(log_std, moves):
    network = make_network(action_size=1)
    with torch.no_grad():
        network.policy_head.log_std.fill_(log_std)
    policy, _ = network.from_normalized(torch.zeros(1, 7))
    raw_action = (policy.mean + 2.0 * policy.log_std.exp()).detach()
    policy.log_prob(raw_action).sum().backward()
    expected = network.policy_head.log_std.grad

    arrays = array_actor_critic.ArrayActorCritic(network)
    arrays.forward(np.zeros((1, 7), np.float32), raw_action.numpy())
    arrays.backward(np.ones(1, np.float32), 0.0, np.zeros(1, np.float32))
    sizes = {name: parameter.numel() for name, parameter in network.named_parameters()}
    start = 0
    for name, size in sizes.items():
        if name == "policy_head.log_std":
            break
        start += size
    found = arrays.gradient[start : start + size]
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4)
    assert (found != 0.0).all() == moves


def test_parameters_are_copies():
    network = make_network(action_size=2)
    before = copy.deepcopy(network.state_dict())
    arrays = array_actor_critic.ArrayActorCritic(network)
    arrays.parameters += 1.0
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


class _OtherTanh(networks.TanhMLP):
    def forward(self, x):
        return 2.0 * super().forward(x)


def _with_other_torso(network):
    network.value_torso = _OtherTanh(7, [16, 8])


class _OtherLinear(nn.Linear):
    def forward(self, x):
        return 2.0 * super().forward(x)


def _with_other_head(network):
    network.value_head = _OtherLinear(8, 1)


def _with_frozen_layer(network):
    network.value_head.bias.requires_grad_(False)


def _with_tied_layers(network):
    network.value_torso[0] = network.policy_torso[0]


def _with_another_parameter(network):
    network.scale = nn.Parameter(torch.ones(()))


CHANGES = {
    "a subclass": _with_other_torso,
    "another kind of layer": _with_other_head,
    "a frozen parameter": _with_frozen_layer,
    "tied layers": _with_tied_layers,
    "a parameter of another's": _with_another_parameter,
    "a hook": lambda network: network.policy_torso.register_forward_hook(lambda *args: None),
    "a hook on the way back": lambda network: network.value_head.register_full_backward_hook(
        lambda *args: None
    ),
    "a parameter's hook": lambda network: network.value_head.weight.register_hook(lambda gradient: gradient),
    "another hook of a parameter": lambda network: (
        network.value_head.weight.register_post_accumulate_grad_hook(lambda parameter: None)
    ),
    "double precision": lambda network: network.double(),
    "a function in place of forward": lambda network: setattr(
        network.policy_torso, "forward", network.value_torso.forward
    ),
    "another device": lambda network: network.to("meta"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_network_that_may_compute_something_else_is_refused(change):
    network = make_network(action_size=2)
    array_actor_critic.ArrayActorCritic(network)
    CHANGES[change](network)
    with pytest.raises(array_actor_critic.UnknownNetwork):
        array_actor_critic.ArrayActorCritic(network)
