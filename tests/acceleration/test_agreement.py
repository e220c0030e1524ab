"""A faster twin stands for the plain way once it agreed with it, and while nothing is replaced."""

import math

import pytest
import torch
from torch import nn

from minerva_acme.acceleration import agreement
from minerva_acme.acceleration.agreement import Agreement, Pair, Watch

X = torch.tensor([3.0, 4.0])


def make_network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 3), nn.ELU(), nn.BatchNorm1d(3), nn.Sequential(), nn.BatchNorm1d(3))


CHANGES = {
    "a layer": lambda net: setattr(net, "0", nn.Linear(3, 3)),
    "a layer more": lambda net: net.append(nn.Tanh()),
    "a first layer": lambda net: net[3].append(nn.Tanh()),
    "a layer less": lambda net: net.__delitem__(1),
    "a parameter": lambda net: setattr(net[0], "weight", nn.Parameter(net[0].weight.detach().clone())),
    "a parameter more": lambda net: net[1].register_parameter("scale", nn.Parameter(torch.ones(()))),
    "other data": lambda net: setattr(net[0].weight, "data", net[0].weight.data.clone()),
    "the same data, transposed": lambda net: setattr(net[0].weight, "data", net[0].weight.data.T),
    "a buffer": lambda net: setattr(net[2], "running_mean", torch.zeros(3)),
    "batch norm's mode": lambda net: net[2].eval(),
    "the last batch norm's mode": lambda net: net[4].eval(),
    "an attribute": lambda net: setattr(net[1], "alpha", 0.5),
    "a forward of its own": lambda net: setattr(net[0], "forward", lambda x: x),
    "another class": lambda net: setattr(net[1], "__class__", nn.CELU),
    "a hook": lambda net: net[0].register_forward_hook(lambda *_: None),
    "a hook before": lambda net: net.register_forward_pre_hook(lambda *_: None),
    "a hook on the way back": lambda net: net[0].register_full_backward_hook(lambda *_: None),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name):
    network = make_network()
    watch = Watch(network)
    assert watch.is_unchanged()
    CHANGES[name](network)
    assert not watch.is_unchanged()


def test_a_hook_of_all_modules_is_seen():
    watch = Watch(make_network())
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert not watch.is_unchanged()
    finally:
        handle.remove()
    assert watch.is_unchanged()


def test_a_class_that_computes_otherwise_is_seen(monkeypatch):
    watch = Watch(make_network())
    monkeypatch.setattr(nn.ELU, "forward", lambda self, x: x)
    assert not watch.is_unchanged()


def test_a_class_that_another_one_derives_from_is_seen(monkeypatch):
    class Twice(nn.ELU):
        def forward(self, x):
            return 2.0 * super().forward(x)

    watch = Watch(nn.Sequential(Twice()))
    assert watch.is_unchanged(is_shared=False)
    monkeypatch.setattr(nn.ELU, "forward", lambda self, x: x)
    assert not watch.is_unchanged(is_shared=False)


def test_training_is_no_change():
    network = make_network()
    watch = Watch(network)
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    network.load_state_dict(make_network().state_dict())
    assert watch.is_unchanged()


@pytest.mark.parametrize(
    ("found", "agrees"),
    [
        (X, True),
        (X + torch.tensor([0.0, 0.004]), True),
        (X + torch.tensor([0.0, 0.006]), False),
        (X[:1], False),
        (X * math.nan, False),
        (X * math.inf, False),
        ([X, X], False),
    ],
)
def test_the_largest_difference_is_relative_to_the_norm(found, agrees):
    seen = Agreement("part")
    assert not seen.holds()
    assert seen.settle(make_network(), values=Pair(found, X)) == agrees
    assert (seen.holds(), seen.is_broken) == (agrees, not agrees)


def test_each_tensor_is_compared_by_its_own_norm_down_to_rounding():
    wanted = {"large": 10.0 * X, "small": X, "least": 1e-5 * X}
    assert Pair(wanted | {"small": 1.1 * X}, wanted).difference() == pytest.approx(0.1, rel=0.3)
    rounded = wanted | {"least": wanted["least"] + 1e-8}
    assert Pair(rounded, wanted).difference() < 1e-3


def test_what_is_zero_is_not_to_differ():
    zeros = torch.zeros(2)
    assert Pair(zeros, zeros).difference() == 0.0
    assert Pair(X, zeros).difference() > 1.0


def test_a_batch_that_is_not_finite_settles_nothing():
    seen = Agreement("part")
    assert not seen.settle(make_network(), values=Pair(X, X * math.nan))
    assert not seen.is_broken and not seen.holds()
    assert seen.settle(make_network(), values=Pair(X, X))


def test_an_agreement_can_be_forgotten():
    seen = Agreement("part")
    seen.settle(make_network(), values=Pair(X, X))
    seen.forget()
    assert not seen.holds() and not seen.is_broken


def test_a_disagreement_is_one_warning_that_names_the_part(caplog, said):
    for _ in range(2):
        Agreement("part").settle(make_network(), values=Pair(2.0 * X, X))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert said()[0].startswith(
        "part: plain torch from now on, because the faster way gave other results: values"
    )


def test_what_calls_more_than_its_class_is_told():
    assert agreement.is_called_as_written(nn.Linear(2, 2))
    own = nn.Linear(2, 2)
    own.extra_repr = lambda: "mine"
    hooked = nn.Linear(2, 2)
    hooked.register_forward_hook(lambda *_: None)
    assert not agreement.is_called_as_written(own) and not agreement.is_called_as_written(hooked)


@pytest.mark.parametrize(
    "kind", ["forward_pre_hook", "forward_hook", "full_backward_pre_hook", "full_backward_hook"]
)
def test_every_kind_of_hook_of_all_modules_is_told(kind):
    watch, module = Watch(make_network()), nn.Linear(2, 2)
    handle = getattr(nn.modules.module, f"register_module_{kind}")(lambda *_: None)
    try:
        assert not agreement.is_called_as_written(module) and not watch.is_unchanged()
    finally:
        handle.remove()
    assert agreement.is_called_as_written(module) and watch.is_unchanged()


def test_shapes_without_numbers_are_taken_as_they_are_and_settle_nothing():
    seen, shape = Agreement("part"), X.to("meta")
    assert seen.settle(make_network(), values=Pair(shape, shape))
    assert not seen.holds() and not seen.is_broken


def test_what_is_compared_far_away_stays_when_the_weights_go_on():
    layer = nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 2.0]]))
    found = agreement.far_weights("weights", layer, lambda far: agreement.Pair(far.weight, far.weight))
    assert [pair.found.tolist() for pair in found.values()] == [[[30.0, 60.0]], [[-30.0, -60.0]]]
    assert [pair.wanted.tolist() for pair in found.values()] == [[[30.0, 60.0]], [[-30.0, -60.0]]]
    assert layer.weight.tolist() == [[0.0, 2.0]]
