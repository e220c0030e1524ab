"""Adam without torch's checks at every step: torch's own, bit for bit."""

import copy
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import optimizer as torch_optimizer

from minerva_acme import acceleration
from minerva_acme.acceleration import adam

KINDS = [
    pytest.param(acceleration.Adam, torch.optim.Adam, 0.0, id="adam"),
    pytest.param(acceleration.Adam, torch.optim.Adam, 0.1, id="adam with decay"),
    pytest.param(acceleration.AdamW, torch.optim.AdamW, 0.1, id="adamw"),
    pytest.param(acceleration.AdamW, torch.optim.AdamW, 0.0, id="adamw without decay"),
]


def make_pair(kind: Any, plain_kind: Any, decay: float) -> tuple[Any, ...]:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 2))
    plain = copy.deepcopy(network)

    def groups(module: nn.Module) -> list[dict[str, Any]]:
        first, *others = module.parameters()
        return [
            {"params": [first], "lr": 1e-2, "weight_decay": decay},
            {"params": others, "lr": 3e-3, "weight_decay": 0.0},
        ]

    return network, kind(groups(network), eps=1e-5), plain, plain_kind(groups(plain), eps=1e-5, fused=True)


def step(network: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(seed))
    optimizer.zero_grad()
    network(x).pow(3).sum().backward()
    optimizer.step()


def assert_same(one: nn.Module, other: nn.Module) -> None:
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(("kind", "plain_kind", "decay"), KINDS)
def test_steps_and_state_are_those_of_torch(kind, plain_kind, decay):
    network, optimizer, plain, plain_optimizer = make_pair(kind, plain_kind, decay)
    before = copy.deepcopy(network)
    for seed in range(5):
        step(network, optimizer, seed)
        step(plain, plain_optimizer, seed)
    assert_same(network, plain)
    assert not torch.equal(network[0].weight, before[0].weight)
    state, plain_state = optimizer.state_dict(), plain_optimizer.state_dict()
    assert state["param_groups"] == plain_state["param_groups"]
    assert state["state"].keys() == plain_state["state"].keys()
    for index, own in state["state"].items():
        assert own.keys() == plain_state["state"][index].keys()
        for name, value in own.items():
            assert torch.equal(value, plain_state["state"][index][name])
            assert value.dtype == plain_state["state"][index][name].dtype


@pytest.mark.parametrize(("kind", "plain_kind", "decay"), KINDS)
def test_each_goes_on_from_the_others_state(kind, plain_kind, decay):
    network, optimizer, plain, plain_optimizer = make_pair(kind, plain_kind, decay)
    for seed in range(3):
        step(network, optimizer, seed)
        step(plain, plain_optimizer, seed)
    state, plain_state = (copy.deepcopy(each.state_dict()) for each in (optimizer, plain_optimizer))
    optimizer.load_state_dict(plain_state)
    plain_optimizer.load_state_dict(state)
    for seed in range(3, 6):
        step(network, optimizer, seed)
        step(plain, plain_optimizer, seed)
    assert_same(network, plain)


def test_a_parameter_without_a_gradient_stays():
    network, optimizer, _, _ = make_pair(acceleration.AdamW, torch.optim.AdamW, 0.1)
    before = copy.deepcopy(network)
    network[2].weight.grad = torch.ones_like(network[2].weight)
    optimizer.step()
    assert torch.equal(network[0].weight, before[0].weight) and len(optimizer.state) == 1
    assert not torch.equal(network[2].weight, before[2].weight)


def test_a_closure_computes_the_gradients_and_hooks_are_called_once():
    network, optimizer, plain, plain_optimizer = make_pair(acceleration.Adam, torch.optim.Adam, 0.0)
    calls: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        x = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
        loss = network(x).pow(3).sum()
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    step(plain, plain_optimizer, 1)
    assert_same(network, plain)
    assert loss.requires_grad and calls == ["before", "after"]


def test_a_profiler_and_hooks_of_all_optimisers_see_its_steps():
    network, optimizer, _, _ = make_pair(acceleration.AdamW, torch.optim.AdamW, 0.1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step(network, optimizer, 0)
    assert "Optimizer.step#AdamW.step" in {event.name for event in profile.events()}
    seen: list[torch.optim.Optimizer] = []
    register = (
        torch_optimizer.register_optimizer_step_pre_hook,
        torch_optimizer.register_optimizer_step_post_hook,
    )
    for number, each in enumerate(register, 1):
        hook = each(lambda found, *_: seen.append(found))
        step(network, optimizer, number)
        hook.remove()
        step(network, optimizer, -number)
        assert seen == [optimizer] * number


def test_torchs_compiler_is_not_imported_by_a_run_that_is_saved_and_restored():
    program = """
import sys
import torch
from minerva_acme import acceleration
from minerva_acme.acceleration import adam
parameter = torch.nn.Parameter(torch.ones(3))
optimizer = acceleration.Adam([{"params": [parameter], "lr": 0.1}], eps=1e-8)
parameter.grad = torch.ones(3)
optimizer.step()
optimizer.zero_grad()
optimizer.load_state_dict(optimizer.state_dict())
assert parameter[0] < 1.0 and len(optimizer.state) == 1
print("torch._dynamo" in sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


# Settings that are written into a group by hand.

SETTINGS = {
    "lr": 0.5,
    "a rate that is a tensor": torch.tensor(0.5),
    "betas": (0.3, 0.7),
    "eps": 0.1,
    "weight_decay": 0.4,
    "amsgrad": True,
    "maximize": True,
    "foreach": True,
    "no kernel": False,
    "foreach and no kernel": None,
    "capturable": True,
    "differentiable": True,
    "decoupled_weight_decay": True,
    "coupled decay": False,
}
KEYS = {
    "a rate that is a tensor": "lr",
    "no kernel": "fused",
    "foreach and no kernel": "fused",
    "coupled decay": "decoupled_weight_decay",
}


def outcome(network, optimizer, name, first):
    """The weights and the state after some steps, or the error that ends them."""
    for number in range(4):
        if number == first:
            for group in optimizer.param_groups[1:]:
                group["weight_decay"] = 0.2
                group[KEYS.get(name, name)] = copy.deepcopy(SETTINGS[name])
                if name.startswith("foreach"):
                    group["foreach"] = True
        try:
            step(network, optimizer, number)
        except (AssertionError, KeyError, RuntimeError) as error:
            return [number, type(error), str(error)]
    states = [value for state in optimizer.state.values() for value in state.values()]
    return [x.detach().clone() for x in (*network.parameters(), *states)]


@pytest.mark.parametrize("first", [0, 2], ids=["at first", "mid-run"])
@pytest.mark.parametrize(("kind", "plain_kind"), [each.values[:2] for each in KINDS[::2]])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_one_group_is_obeyed_as_torch_obeys_it(name, kind, plain_kind, first):
    network, optimizer, plain, plain_optimizer = make_pair(kind, plain_kind, 0.0)
    found = outcome(network, optimizer, name, first)
    expected = outcome(plain, plain_optimizer, name, first)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def test_a_setting_that_torch_learns_later_is_left_to_torch(monkeypatch):
    network, optimizer, _, _ = make_pair(acceleration.Adam, torch.optim.Adam, 0.0)
    optimizer.defaults["heavy_ball"] = True
    steps = []
    monkeypatch.setattr(acceleration.Adam, "_torchs_step", lambda self: steps.append(self))
    step(network, optimizer, 0)
    assert steps == [optimizer]


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_every_setting_of_torchs_own_is_obeyed(kind):
    assert adam.is_known(kind(nn.Linear(1, 1).parameters()))


def test_a_gradient_that_a_scaler_found_infinite_moves_nothing():
    network, optimizer, plain, plain_optimizer = make_pair(acceleration.Adam, torch.optim.Adam, 0.0)
    for module, each in ((network, optimizer), (plain, plain_optimizer)):
        step(module, each, 0)
        each.found_inf, each.grad_scale = torch.ones(()), torch.full((), 2.0)
        step(module, each, 1)
        each.found_inf = torch.zeros(())
        step(module, each, 2)
    assert_same(network, plain)


def test_hooks_are_called_once_around_torchs_own_step():
    network, optimizer, _, _ = make_pair(acceleration.Adam, torch.optim.Adam, 0.0)
    optimizer.param_groups[0]["fused"] = False
    calls: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    torch.optim.Adam(nn.Linear(1, 1).parameters())  # from here on, torch's own steps call hooks too
    step(network, optimizer, 0)
    assert calls == ["before", "after"]
