"""The one entry: every part equals its plain twin, `off` takes the plain one, and the log says which."""

import copy
import random
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from minerva_acme import acceleration, networks
from minerva_acme.acceleration import choice, kernels, parallel
from tests.closeness import assert_close_to_norm


@pytest.fixture
def onednn(monkeypatch):
    """As if MKL were slow on this CPU, and everything large enough."""
    if not kernels._onednn_works():
        pytest.skip("this torch has no oneDNN linear kernel")
    monkeypatch.setattr(kernels, "uses_onednn", lambda: True)
    monkeypatch.setattr(kernels, "MIN_SIZE", 1)
    monkeypatch.setattr(kernels.cpu, "has_avx512", lambda: True)


@pytest.fixture
def two_threads(threads_are_given_back):
    torch.set_num_threads(2)


@pytest.fixture
def tiny_is_small(monkeypatch):
    """As if even the networks here gained from several threads."""
    monkeypatch.setattr(choice, "_TINY_UPDATE", 0)


def seeded():
    return torch.Generator().manual_seed(0)


def make_critic(*layer_sizes):
    generator, sizes = seeded(), layer_sizes or (16, 8)
    torso = networks.LayerNormMLP(5, sizes, generator=generator)
    head = networks.ScalarHead(sizes[-1], generator=generator)
    return networks.Critic(torso, head, bounds=(-torch.ones(2), torch.ones(2)))


def make_policy():
    return networks.GaussianPolicy(3, 2, (16, 8), generator=seeded())


def make_actor_critic(torso):
    return networks.make_actor_critic(
        normalizer=networks.RunningNorm(3),
        encoder=networks.IdentityEncoder(3),
        encoder_loss="both",
        action_size=2,
        layer_sizes=(16, 8),
        value_layer_sizes=(16, 8),
        torso=torso,
        shared_torso=False,
        state_dependent_std=False,
        initial_stddev=0.5,
        policy_gain=0.5,
        generator=seeded(),
    )


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="`acceleration` must be auto, off or compile, got 'on'"):
        acceleration.Acceleration("on")


NETWORKS = {
    "policy": make_policy,
    "critic": make_critic,
    "tanh": lambda: make_actor_critic("tanh"),
    "layer norm": lambda: make_actor_critic("layer_norm"),
}


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_an_accelerated_network_computes_and_learns_as_the_plain_one(make, said):
    plain = make()
    fast = acceleration.Acceleration("auto").network("it", copy.deepcopy(plain))
    observation, action = torch.randn(64, 3, generator=seeded()), torch.randn(64, 2, generator=seeded())
    inputs = (observation, action) if isinstance(plain, networks.Critic) else (observation,)

    def outputs(network):
        nested = network(*inputs)
        return [leaf for leaf in torch.utils._pytree.tree_leaves(nested)]

    with torch.no_grad():
        for ours, theirs in zip(outputs(fast), outputs(plain), strict=True):
            assert_close_to_norm(ours, theirs)
    for network in (fast, plain):
        sum(leaf.sin().sum() for leaf in outputs(network)).backward()
    for ours, theirs in zip(fast.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    assert fast.state_dict().keys() == plain.state_dict().keys()
    changed = sum(type(layer) is kernels.Linear for layer in fast.modules())
    assert changed > 0 and said() == [f"it: oneDNN for {changed} layers"]


@pytest.mark.parametrize(
    ("mode", "uses_onednn", "line"),
    [
        ("off", True, "it: plain torch: acceleration is off"),
        ("auto", False, "it: plain torch: its kernels are the faster ones on this CPU"),
    ],
)
def test_a_network_that_is_not_accelerated_stays_and_the_log_says_why(
    mode, uses_onednn, line, monkeypatch, said
):
    monkeypatch.setattr(kernels, "uses_onednn", lambda: uses_onednn)
    critic = make_critic()
    types = [type(module) for module in critic.modules()]
    for _ in range(2):
        assert acceleration.Acceleration(mode).network("it", critic) is critic
    assert [type(module) for module in critic.modules()] == types
    assert said() == [line]


def test_a_network_without_a_known_layer_is_said_to_be_plain(onednn, said):
    acceleration.Acceleration("auto").network("it", nn.Bilinear(2, 2, 1))
    assert said() == ["it: plain torch: no supported layer"]


@pytest.mark.parametrize(
    ("mode", "line"), [("auto", "acting: arrays"), ("off", "acting: torch: acceleration is off")]
)
def test_both_ways_of_acting_agree_and_the_log_says_once_which_is_taken(mode, line, said):
    network = make_actor_critic("tanh").requires_grad_(False)
    rows = np.random.default_rng(0).standard_normal((5, 3), np.float32)
    expected = network.policy(torch.from_numpy(rows))
    for _ in range(2):
        policy = acceleration.Acceleration(mode).acting(network, seeded())
    choice = policy.sample(rows)
    assert_close_to_norm(choice.parameters.mean, expected.mean)
    assert_close_to_norm(choice.parameters.log_std, expected.log_std)
    log_prob = expected.log_prob(torch.from_numpy(choice.raw))
    np.testing.assert_allclose(choice.log_prob, log_prob, rtol=1e-4, atol=1e-5)
    assert_close_to_norm(policy(rows).mode(), expected.mean)
    assert ("random" in policy.noise) == (mode == "auto")
    assert said() == [line]


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_both_ways_to_evaluate_a_target_critic_agree(mode):
    critic = make_critic()
    pairs = torch.randn(50, 3, generator=seeded()), torch.randn(50, 2, generator=seeded())
    fast = acceleration.Acceleration(mode).target_critic(critic, "float32")
    torch.testing.assert_close(fast(*pairs).mean(), critic(*pairs).mean().detach(), rtol=1e-5, atol=1e-5)


class Halved(TorchDispatchMode):
    """Halves sines."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return 0.5 * result if func is torch.ops.aten.sin.default else result


class Doubled(TorchFunctionMode):
    """Doubles layers' outputs."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return 2.0 * result if func is nn.functional.linear else result


def make_updates(num_rows=64, critic=None, policy=None):
    """Two updates of networks of their own, and what they note."""
    notes = []
    policy, critic = policy or make_policy(), critic or make_critic()

    def make(name, network, inputs):
        def update():
            notes.append((name, threading.current_thread(), torch.get_num_threads()))
            sum(leaf.sin().sum() for leaf in torch.utils._pytree.tree_leaves(network(*inputs))).backward()
            return name

        return update, [*network.parameters()], num_rows

    observation, action = torch.randn(64, 3, generator=seeded()), torch.randn(64, 2, generator=seeded())
    updates = [
        make("critic", critic, (observation, action)),
        make("policy", policy, (observation,)),
    ]
    return updates, notes


@pytest.mark.usefixtures("two_threads", "tiny_is_small")
def test_updates_side_by_side_give_what_they_give_one_by_one(said):
    gradients = []
    for mode in ("auto", "off"):
        updates, notes = make_updates()
        both = acceleration.Acceleration(mode)
        assert both.side_by_side(*updates) == ["critic", "policy"]  # one by one, to see whether they draw
        assert both.side_by_side(*updates) == ["critic", "policy"]
        del notes[:2]
        by_others = [thread is not threading.current_thread() for _, thread, _ in notes]
        assert by_others == [mode == "auto"] * 2
        assert [num_threads for _, _, num_threads in notes] == [1 if mode == "auto" else 2] * 2
        gradients.append([p.grad for _, parameters, _ in updates for p in parameters])
    for ours, theirs in zip(*gradients, strict=True):
        assert_close_to_norm(ours, theirs)
    assert said() == ["updates: side by side, one thread each", "updates: one by one: acceleration is off"]


def _share(updates):
    (_, critic, _), (_, policy, _) = updates
    critic.append(policy[0])
    return updates


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(
    ("change", "num_rows", "reason", "threads"),
    [
        (lambda updates: updates, 2**24, "they are large, or not on a CPU", 2),
        (lambda updates: updates, 64, "they are too small to wait for each other", 1),
        (_share, 2**18, "they share parameters", 1),
    ],
)
def test_updates_that_do_not_suit_are_made_one_by_one_and_the_log_says_why(
    change, num_rows, reason, threads, monkeypatch, said
):
    monkeypatch.setattr(parallel, "run_together", lambda *_: pytest.fail("at once"))
    updates, notes = make_updates(num_rows)
    assert acceleration.Acceleration("auto").side_by_side(*change(updates)) == ["critic", "policy"]
    assert [(name, num_threads) for name, _, num_threads in notes] == [
        ("critic", threads),
        ("policy", threads),
    ]
    assert torch.get_num_threads() == 2
    assert said() == [f"updates: one by one: {reason}"]


DRAWS = {"torch": lambda: torch.rand(1), "NumPy": np.random.random, "Python": random.random}


@pytest.mark.usefixtures("two_threads", "tiny_is_small")
# Torch's generator is looked at in every step.
@pytest.mark.parametrize(("name", "first_draw"), [*((name, 1) for name in DRAWS), ("torch", 2)])
def test_updates_that_draw_random_numbers_are_made_one_by_one(name, first_draw, said):
    (*critic_update,), (make, *others) = make_updates()[0]
    made = []

    def draws():
        made.append(threading.current_thread())
        if len(made) >= first_draw:
            DRAWS[name]()
        return make()

    both = acceleration.Acceleration("auto")
    for _ in range(4):
        assert both.side_by_side(tuple(critic_update), (draws, *others)) == ["critic", "policy"]
    assert [thread is threading.current_thread() for thread in made] == [True, first_draw == 1, True, True]
    assert said()[-1] == "updates: one by one: they draw random numbers"


MODES = {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "saved tensors": lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: 2.0 * x, lambda x: x),
    "functions": Doubled,
    "operators": Halved,
    "no gradient": torch.no_grad,
    "inference": torch.inference_mode,
}


@pytest.mark.usefixtures("two_threads", "tiny_is_small")
@pytest.mark.parametrize("name", MODES)
def test_updates_within_a_mode_that_other_threads_lack_are_made_one_by_one(name, said):
    layer, x = nn.Linear(3, 2), torch.randn(64, 3, generator=seeded())

    def update():
        loss = layer(x).sin().sum()
        gradients = torch.autograd.grad(loss, [*layer.parameters()]) if loss.requires_grad else []
        return [threading.current_thread(), loss.detach().clone(), *gradients]

    both = acceleration.Acceleration("auto")
    updates = [(update, [*each.parameters()], 64) for each in (layer, make_critic())]
    both.side_by_side(*updates)
    by_others = [thread is not threading.current_thread() for thread, *_ in both.side_by_side(*updates)]
    assert by_others == [True, True]
    with MODES[name]():
        expected = update()
        results = both.side_by_side(*updates)
    for thread, *tensors in results:
        assert thread is threading.current_thread()
        assert all(map(torch.equal, tensors, expected[1:]))
    assert said() == [
        "updates: side by side, one thread each",
        "updates: one by one: a mode of torch is active in this thread alone, such as autocast",
    ]


@pytest.mark.usefixtures("tiny_is_small")
def test_with_one_thread_updates_are_made_one_by_one(said):
    updates, notes = make_updates()
    acceleration.Acceleration("auto").side_by_side(*updates)
    assert [name for name, _, _ in notes] == ["critic", "policy"]
    assert said() == ["updates: one by one: torch has one thread"]


@pytest.mark.usefixtures("two_threads", "tiny_is_small")
def test_updates_that_several_learners_make_together_are_made_one_by_one(monkeypatch, said):
    monkeypatch.setattr(parallel, "run_together", lambda *_: pytest.fail("at once"))
    updates, notes = make_updates()
    acceleration.Acceleration("auto").side_by_side(*updates, in_order=True)
    assert [name for name, _, _ in notes] == ["critic", "policy"]
    assert said() == ["updates: one by one: several learners make them together"]


def test_ppo_of_several_learners_makes_plain_steps(said):
    def plain(minibatch):
        return torch.zeros(7)

    network = make_actor_critic("tanh")
    with acceleration.Acceleration("auto").ppo_step(plain, network, None, None, alone=False) as step:
        assert step is plain
    assert said() == ["PPO's updates: autograd: several learners average their gradients"]


def test_without_acceleration_ppo_makes_plain_steps(said):
    def plain(minibatch):
        return torch.zeros(7)

    network = make_actor_critic("tanh")
    for _ in range(2):
        with acceleration.Acceleration("off").ppo_step(plain, network, None, None) as step:
            assert step is plain
    assert said() == ["PPO's updates: autograd: acceleration is off"]


SMALL, LARGE = [nn.Parameter(torch.empty(2**10, 2**10))], [nn.Parameter(torch.empty(2**10, 2**11))]


@pytest.mark.parametrize("mode", ["auto", "off"])
@pytest.mark.parametrize(
    ("parameters", "waits", "threads"),
    [
        (SMALL, "PASSIVE", 1),
        (SMALL, None, 1),
        (SMALL, "active", 2),
        (LARGE, "PASSIVE", 2),
        ([nn.Parameter(torch.empty(8, 4, 3, 3))], "PASSIVE", 2),
    ],
    ids=["small", "small by default", "small and spinning", "large", "convolution"],
)
def test_a_small_step_is_made_by_one_thread_and_parts_still_by_all(
    mode, parameters, waits, threads, monkeypatch, two_threads, said
):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if waits:
        monkeypatch.setenv("OMP_WAIT_POLICY", waits)
    for _ in range(2):
        with pytest.raises(ArithmeticError), acceleration.Acceleration(mode).step(parameters, 2**8 - 1):
            assert (torch.get_num_threads(), parallel.available()) == (threads, 2)
            raise ArithmeticError
        assert (torch.get_num_threads(), parallel.available()) == (2, 2)
    line = "threads: one for each operation, since learner steps are small"
    assert said() == [line] * (threads == 1)


def test_with_one_thread_nothing_is_set_or_said(monkeypatch, said):
    monkeypatch.setattr(torch, "set_num_threads", lambda number: pytest.fail("was set"))
    with acceleration.Acceleration("auto").step(SMALL, 1):
        assert parallel.available() == 1
    assert not said()
