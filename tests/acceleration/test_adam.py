"""Adam without the import of torch's compiler: torch's own, bit for bit."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from minerva_acme import acceleration

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
        return [{"params": [first], "lr": 1e-2, "weight_decay": decay}, {"params": others, "lr": 3e-3}]

    plain_optimizer = plain_kind(groups(plain), eps=1e-5, weight_decay=0.0, fused=True)
    return network, kind(groups(network), eps=1e-5), plain, plain_optimizer


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


def test_torchs_compiler_is_not_imported_by_a_run_that_is_saved_and_restored(nursery):
    program = """
import sys
import torch
from minerva_acme import acceleration
parameter = torch.nn.Parameter(torch.ones(3))
optimizer = acceleration.Adam([{"params": [parameter], "lr": 0.1}], eps=1e-8)
parameter.grad = torch.ones(3)
optimizer.step()
optimizer.zero_grad()
optimizer.load_state_dict(optimizer.state_dict())
assert parameter[0] < 1.0 and len(optimizer.state) == 1
print("torch._dynamo" in sys.modules)
"""
    assert nursery.start(program).communicate() == (0, "False\n")
