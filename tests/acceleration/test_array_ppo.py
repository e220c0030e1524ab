"""PPO's steps on arrays are those of autograd, and leave the same network and the same optimiser."""

import contextlib
import copy
import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from minerva_acme import acceleration, losses, networks, testing
from minerva_acme.acceleration import Agreement, array_ppo
from minerva_acme.agents.ppo.learner import PPOLearner
from tests.closeness import assert_close_to_norm

SETTINGS = {"clip_ratio": 0.2, "clip_value": True, "entropy_coef": 0.01, "value_coef": 0.5}
TRAINED = ("log_prob", "value", "entropy")


# The loss and its derivatives.


def random_inputs(n: int = 16, seed: int = 0) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    names = (*TRAINED, "behaviour_log_prob", "behaviour_value", "advantages", "targets")
    return {name: torch.randn(n, generator=generator) for name in names} | SETTINGS


def as_arrays(inputs):
    return {
        name: value.detach().numpy() if isinstance(value, torch.Tensor) else value
        for name, value in inputs.items()
    }


def assert_same_as_autograd(inputs, **tolerance):
    """Returns what arrays find, after holding it against autograd."""
    tensors = inputs | {name: inputs[name].clone().requires_grad_() for name in TRAINED}
    expected = losses.ppo_loss(**tensors)
    expected.total.backward()
    with np.errstate(over="ignore", invalid="ignore"):
        found = array_ppo.loss_gradients(**as_arrays(inputs))
    gradients = {
        "log_prob": torch.from_numpy(found.log_prob),
        "value": torch.from_numpy(found.value),
        "entropy": torch.full_like(tensors["entropy"], found.entropy),
    }
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, tensors[name].grad, equal_nan=True, **tolerance)
    torch.testing.assert_close(
        torch.tensor(found.losses, dtype=torch.float32),
        torch.stack(expected).detach(),
        equal_nan=True,
        **tolerance,
    )
    return found


@pytest.mark.parametrize("clip_value", [True, False])
def test_loss_and_gradients_are_those_of_autograd(clip_value):
    for seed in range(5):
        assert_same_as_autograd(
            random_inputs(n=41, seed=seed) | {"clip_value": clip_value, "clip_ratio": 0.5}
        )


def test_gradients_at_the_first_ratio_are_those_of_autograd():
    inputs = random_inputs()
    inputs["behaviour_log_prob"] = inputs["log_prob"].clone()
    inputs["behaviour_value"] = inputs["value"].clone()
    assert (assert_same_as_autograd(inputs).log_prob != 0.0).all()


def test_a_value_within_its_clip_range_learns_from_every_sample():
    inputs = random_inputs(n=256)
    for name in ("value", "behaviour_value", "targets"):
        inputs[name] = (0.05 * inputs[name]).clamp(-0.09, 0.09)
    # V_b + (V - V_b) is not V, but for rounding: its error may be the larger, and is not clipped.
    moved = inputs["behaviour_value"] + (inputs["value"] - inputs["behaviour_value"]) - inputs["targets"]
    assert (moved.square() > (inputs["value"] - inputs["targets"]).square()).any()
    found = assert_same_as_autograd(inputs)
    expected = SETTINGS["value_coef"] * (inputs["value"] - inputs["targets"]) / 256
    torch.testing.assert_close(torch.from_numpy(found.value), expected)


@pytest.mark.parametrize("clip_ratio", [0.2, 0.5])
def test_the_surrogate_of_any_ratio_and_advantage_is_that_of_autograd(clip_ratio):
    log_ratios = (-100.0, -80.0, -20.0, -0.3, -0.1, 0.0, 0.1, 0.3, 20.0, 80.0, 88.0, 95.0, 100.0)
    advantages = [sign * size for size in (0.0, 1e-30, 1.0, 1e30) for sign in (1.0, -1.0)]
    for log_ratio, advantage in itertools.product(log_ratios, advantages):
        inputs = SETTINGS | {name: torch.zeros(1) for name in (*TRAINED, "targets", "behaviour_value")}
        inputs |= {
            "behaviour_log_prob": torch.tensor([-log_ratio]),
            "advantages": torch.tensor([advantage]),
            "clip_ratio": clip_ratio,
        }
        assert_same_as_autograd(inputs, rtol=1e-4, atol=1e-37)


@pytest.mark.parametrize("clip_value", [True, False])
def test_the_value_loss_of_any_values_is_that_of_autograd(clip_value):
    numbers = (1e-30, 0.15, -1.0, 3.0, 1e30)
    for value, behaviour_value, target in itertools.product(numbers, repeat=3):
        names = ("log_prob", "entropy", "behaviour_log_prob", "advantages")
        inputs = SETTINGS | {name: torch.zeros(1) for name in names}
        inputs |= {
            "value": torch.tensor([value]),
            "behaviour_value": torch.tensor([behaviour_value]),
            "targets": torch.tensor([target]),
            "clip_value": clip_value,
        }
        assert_same_as_autograd(inputs, rtol=1e-4, atol=1e-37)


@pytest.mark.parametrize("clip_value", [True, False])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("name", ["log_prob", "behaviour_log_prob", "advantages", "value", "targets"])
def test_what_is_not_a_number_is_never_clipped_away(name, advantage, clip_value):
    inputs = random_inputs() | {"advantages": torch.full((16,), advantage), "clip_value": clip_value}
    inputs[name][0] = math.nan
    found = assert_same_as_autograd(inputs)
    gradient = found.value if name in ("value", "targets") else found.log_prob
    assert np.isnan(gradient).nonzero()[0].tolist() == [0]


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e15, 1e30, 1e37])
def test_advantages_of_any_size_are_normalized_as_a_tensor_is(size):
    advantages = size * (3.0 + torch.randn(37, generator=torch.Generator().manual_seed(0)))
    found = array_ppo.normalize(advantages.numpy())
    assert found.dtype == np.float32
    torch.testing.assert_close(
        torch.from_numpy(found), losses.normalize_advantages(advantages, unbiased=True)
    )


@pytest.mark.parametrize("count", [3, 63, 64])
def test_advantages_that_are_all_equal_become_zero(count):
    assert (array_ppo.normalize(np.full(count, 0.1, np.float32)) == 0.0).all()


# Steps.


class Minibatch(NamedTuple):
    """The fields that a step reads."""

    observation: torch.Tensor
    raw_action: torch.Tensor
    raw_log_prob: torch.Tensor
    value: torch.Tensor
    advantage: torch.Tensor
    weight: torch.Tensor
    target: torch.Tensor


# Settings of the step, of the network, and the number of discrete actions.
KINDS = {
    "continuous": ({}, {}, None),
    "discrete": ({}, {}, 4),
    "all the same": ({}, {"shared_torso": True, "state_dependent_std": True}, None),
    "with entropy": ({"entropy_coef": 0.05}, {}, 4),
    "plain values and advantages": ({"clip_value": False, "normalize_advantages": False}, {}, None),
    "hardly clipped": ({"max_grad_norm": 1e3, "clip_ratio": 5.0}, {}, None),
}
N, NUM_MINIBATCHES = 120, 7  # of 18 and 17 samples


def make(kind="continuous"):
    """Settings, a network, and samples that an update has moved away from a little."""
    changes, network_changes, num_actions = KINDS[kind]
    settings = SETTINGS | {"minibatch_size": 17, "normalize_advantages": True}
    settings |= {"max_grad_norm": 0.5, "largest_norm": 1e18}
    generator = torch.Generator().manual_seed(0)
    network = networks.make_actor_critic(
        normalizer=networks.RunningNorm(5),
        encoder=networks.IdentityEncoder(5),
        encoder_loss="both",
        num_actions=num_actions,
        action_size=None if num_actions else 2,
        layer_sizes=(16, 16),
        value_layer_sizes=(16, 16),
        torso="tanh",
        **{"shared_torso": False, "state_dependent_std": False, **network_changes},
        initial_stddev=1.0,
        policy_gain=0.5,
        generator=generator,
    )
    observation = torch.randn(N, 5, generator=generator)
    raw_action = (
        torch.randint(num_actions, (N,), generator=generator)
        if num_actions
        else torch.randn(N, 2, generator=generator)
    )
    with torch.no_grad():
        policy, value = network.from_normalized(observation)
        log_prob = policy.log_prob(raw_action)
    noise = 0.3 * torch.randn(2, N, generator=generator)
    advantage, target = torch.randn(2, N, generator=generator)
    weight = torch.rand(N, generator=generator)
    samples = Minibatch(
        observation, raw_action, log_prob + noise[0], value + noise[1], advantage, weight, target
    )
    return settings | changes, network, samples


def make_optimizer(network):
    return acceleration.Adam([{"params": [*network.parameters()], "lr": 1e-2}], eps=1e-5)


def make_plain(network, optimizer, settings):
    """A step by autograd, with nothing of `acceleration`."""

    def step(minibatch):
        advantages = minibatch.advantage
        if settings["normalize_advantages"]:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        policy, value = network.from_normalized(minibatch.observation)
        loss = losses.ppo_loss(
            log_prob=policy.log_prob(minibatch.raw_action),
            behaviour_log_prob=minibatch.raw_log_prob,
            advantages=minibatch.weight * advantages,
            targets=minibatch.target,
            value=value,
            behaviour_value=minibatch.value,
            entropy=policy.entropy(),
            **{name: settings[name] for name in SETTINGS},
        )
        optimizer.zero_grad()
        loss.total.backward()
        norm = nn.utils.clip_grad_norm_(network.parameters(), settings["max_grad_norm"])
        optimizer.step()
        return torch.stack([*loss, norm]).detach()

    return step


def make_step(network, optimizer, settings):
    return array_ppo.make_step(
        make_plain(network, optimizer, settings),
        network,
        optimizer,
        agreement=Agreement("PPO's updates"),
        **settings,
    )


def run_epoch(step_context, samples, seed, num_minibatches=NUM_MINIBATCHES):
    order = torch.randperm(N, generator=torch.Generator().manual_seed(seed))
    columns = [column[order].tensor_split(num_minibatches) for column in samples]
    with step_context as step:
        return torch.stack([step(Minibatch(*parts)) for parts in zip(*columns, strict=True)])


def assert_same_states(found, expected):
    assert found["param_groups"] == expected["param_groups"]
    assert found["state"].keys() == expected["state"].keys()
    for index, state in found["state"].items():
        assert state.keys() == expected["state"][index].keys()
        for key, value in state.items():
            wanted = expected["state"][index][key]
            assert_close_to_norm(value, wanted, relative=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_both_ways_make_the_same_steps_and_may_take_turns(kind, said):
    settings, network, samples = make(kind)
    other = copy.deepcopy(network)
    optimizer, other_optimizer = make_optimizer(network), make_optimizer(other)
    plain = make_plain(network, optimizer, settings)
    other_plain = make_plain(other, other_optimizer, settings)
    # The last update of the second network is by autograd, on what arrays have left.
    for seed, by_arrays in enumerate((True, True, False)):
        expected = run_epoch(contextlib.nullcontext(plain), samples, seed)
        found = run_epoch(
            make_step(other, other_optimizer, settings) if by_arrays else contextlib.nullcontext(other_plain),
            samples,
            seed,
        )
        assert_close_to_norm(found, expected, relative=1e-4)
        for name, parameter in other.named_parameters():
            assert_close_to_norm(parameter, network.get_parameter(name), relative=1e-4)
        assert_same_states(other_optimizer.state_dict(), optimizer.state_dict())
    initial = make(kind)[1]
    assert all(
        (parameter - initial.get_parameter(name)).abs().max() > 1e-3
        for name, parameter in other.named_parameters()
    )
    assert said() == ["PPO's updates: arrays, with hand-written gradients"]


def transpose_in_memory(network):
    """The same numbers, as weights from a library with [in, out] lie."""
    for layer in (network.policy_torso[2], network.value_torso[0]):
        layer.weight = nn.Parameter(layer.weight.detach().T.contiguous().T)


def test_weights_that_lie_transposed_have_moments_that_lie_so_too():
    settings, network, samples = make()
    transpose_in_memory(network)
    other = copy.deepcopy(network)
    optimizer, other_optimizer = make_optimizer(network), make_optimizer(other)
    plain, other_plain = (
        make_plain(network, optimizer, settings),
        make_plain(other, other_optimizer, settings),
    )
    ways = (make_step(other, other_optimizer, settings), contextlib.nullcontext(other_plain))
    for seed, way in enumerate(ways):
        expected = run_epoch(contextlib.nullcontext(plain), samples, seed)
        found = run_epoch(way, samples, seed)
        assert_close_to_norm(found, expected, relative=1e-4)
        assert_same_states(other_optimizer.state_dict(), optimizer.state_dict())
    for name, parameter in other.named_parameters():
        assert_close_to_norm(parameter, network.get_parameter(name), relative=1e-4)
        state = other_optimizer.state[parameter]
        assert {state[name].stride() for name in ("exp_avg", "exp_avg_sq")} == {parameter.stride()}


def _hook(settings, network):
    network.value_torso.register_forward_hook(lambda *args: None)


def _hook_inside(settings, network):
    network.policy_torso[2].register_forward_hook(lambda *args: None)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        # Where the arithmetic takes longer than the calls, torch has threads for it.
        (
            lambda settings, network: settings.update(minibatch_size=100_000),
            "minibatch and network are large",
        ),
        (_hook, "TanhMLP has hooks"),
        (_hook_inside, "Linear has hooks"),
        (
            lambda settings, network: network.double(),
            "a parameter is not a plain float32 parameter on the CPU",
        ),
    ],
)
def test_where_arrays_do_not_suit_the_plain_step_is_returned_and_the_log_says_why(change, reason, said):
    settings, network, _ = make()
    change(settings, network)
    plain = make_plain(network, make_optimizer(network), settings)
    with array_ppo.make_step(
        plain, network, make_optimizer(network), agreement=Agreement("PPO's updates"), **settings
    ) as step:
        assert step is plain
    assert said() == [f"PPO's updates: autograd: {reason}"]


def test_another_optimiser_makes_plain_steps(said):
    settings, network, _ = make()
    plain = make_plain(network, make_optimizer(network), settings)
    sgd = torch.optim.SGD(network.parameters(), lr=1e-2)
    with array_ppo.make_step(plain, network, sgd, agreement=Agreement("PPO's updates"), **settings) as step:
        assert step is plain
    assert said() == ["PPO's updates: autograd: SGD is not supported"]


def make_step_of(learner):
    """A step, as a learner asks for it, and its plain one."""
    settings, network, _ = make()
    plain = learner._step_on
    with array_ppo.make_step(
        plain, network, make_optimizer(network), agreement=Agreement("PPO's updates"), **settings
    ) as step:
        return step, plain


def as_a_subclass(name, method):
    return object.__new__(type("Edited", (PPOLearner,), {name: method}))


def as_an_attribute(name, method):
    learner = object.__new__(PPOLearner)
    setattr(learner, name, method)
    return learner


@pytest.mark.parametrize(
    ("name", "override"),
    [
        *((name, as_a_subclass) for name in array_ppo._METHODS),
        *((name, as_an_attribute) for name in array_ppo._METHODS[:-1]),
    ],
)
def test_a_method_of_a_researcher_that_arrays_would_not_call_makes_plain_steps(name, override, said):
    """Its effect may be below any tolerance on the minibatches that are compared."""
    assert name in {*dir(PPOLearner)}
    learner = override(name, lambda *args: None)
    step, plain = make_step_of(learner)
    assert step == plain
    assert said() == [f"PPO's updates: autograd: {type(learner).__name__} has another {name}"]


def test_other_methods_of_a_subclass_leave_arrays(said):
    step, plain = make_step_of(as_a_subclass("improve", lambda *args: None))
    assert step != plain
    assert said() == ["PPO's updates: arrays, with hand-written gradients"]


@pytest.mark.parametrize("target", [math.inf, math.nan, 1e19])
def test_a_gradient_that_is_not_finite_is_reported_in_the_norm_and_makes_no_step(target):
    settings, network, samples = make()
    before, optimizer = copy.deepcopy(network.state_dict()), make_optimizer(network)
    bad = samples._replace(target=torch.full((N,), target))
    with make_step(network, optimizer, settings) as step:
        step(samples)
        assert not step(bad)[-1] <= 1e18
    assert all(each["step"] == 1 for each in optimizer.state.values())
    assert not torch.equal(network.state_dict()["value_head.weight"], before["value_head.weight"])
    _, other, _ = make()
    with make_step(other, make_optimizer(other), settings) as step:
        step(samples)
    testing.assert_nests_equal(dict(network.state_dict()), dict(other.state_dict()))


def test_nothing_reaches_network_or_optimiser_before_the_end_or_an_error():
    settings, network, samples = make()
    before, optimizer = copy.deepcopy(network.state_dict()), make_optimizer(network)

    def is_untouched():
        return not optimizer.state and all(
            torch.equal(value, before[name]) for name, value in network.state_dict().items()
        )

    places = [parameter.data_ptr() for parameter in network.parameters()]
    with pytest.raises(ArithmeticError), make_step(network, optimizer, settings) as step:
        step(samples)
        assert is_untouched()
        raise ArithmeticError
    assert [parameter.data_ptr() for parameter in network.parameters()] == places  # written in place
    assert len(optimizer.state) == len([*network.parameters()])
    assert not any(torch.equal(value, before[name]) for name, value in network.named_parameters())


def test_torchs_own_adam_makes_steps_on_arrays_too():
    settings, network, samples = make()
    other = copy.deepcopy(network)
    for module, kind in ((network, make_optimizer), (other, adam)):
        optimizer = kind(module)
        optimizer.param_groups[0]["eps"] = 1e-5
        plain = make_plain(module, optimizer, settings)
        with array_ppo.make_step(
            plain, module, optimizer, agreement=Agreement("PPO's updates"), **settings
        ) as step:
            assert step is not plain
            step(samples)
    for own, torchs in zip(network.parameters(), other.parameters(), strict=True):
        assert torch.equal(own, torchs)


class OwnAdam(torch.optim.Adam):
    pass


def adam(network, **settings):
    return torch.optim.Adam(network.parameters(), lr=1e-2, **settings)


def hooked(network):
    optimizer = adam(network)
    optimizer.register_step_post_hook(lambda *arguments: None)
    return optimizer


def in_two_groups(network):
    first, *others = network.parameters()
    return torch.optim.Adam([{"params": [first], "lr": 0.1}, {"params": others}], lr=1e-2)


@pytest.mark.parametrize(
    ("make_adam", "reason"),
    [
        (lambda network: OwnAdam(network.parameters()), "OwnAdam is not supported"),
        (lambda network: adam(network, amsgrad=True), "Adam has several groups"),
        (hooked, "Adam has several groups"),
        (in_two_groups, "Adam has several groups"),
        (lambda network: torch.optim.Adam([*network.parameters()][1:]), "Adam has several groups"),
    ],
    ids=["subclass", "amsgrad", "hook", "groups", "part"],
)
def test_an_adam_with_settings_that_arrays_do_not_know_makes_plain_steps(make_adam, reason, said):
    settings, network, _ = make()
    plain = make_plain(network, make_optimizer(network), settings)
    with array_ppo.make_step(
        plain, network, make_adam(network), agreement=Agreement("PPO's updates"), **settings
    ) as step:
        assert step is plain
    assert reason in said()[0]
