"""The layer against torch's, by oneDNN's kernel and by torch's own."""

import copy
import io
import pathlib
import pickle
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from minerva_acme.acceleration import linear

SHAPES: dict[str, Callable[[], torch.Tensor]] = {
    "one row": lambda: torch.randn(1, 16),
    "no rows": lambda: torch.randn(0, 16),
    "no leading axis": lambda: torch.randn(16),
    "rows": lambda: torch.randn(33, 16),
    "two leading axes": lambda: torch.randn(3, 5, 16),
    "three leading axes": lambda: torch.randn(2, 3, 5, 16),
    "expanded": lambda: torch.randn(5, 16).expand(4, 5, 16),
    "transposed rows": lambda: torch.randn(16, 33).T,
    "transposed axes": lambda: torch.randn(5, 4, 16).transpose(0, 1),
    "every other column": lambda: torch.randn(33, 32)[:, ::2],
}


@pytest.fixture(params=["torch", "onednn"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Computes by one kernel whatever the size."""
    if request.param == "onednn" and not linear._onednn_works():
        pytest.skip("this torch has no oneDNN linear kernel")
    monkeypatch.setattr(linear, "_USE_ONEDNN", request.param == "onednn")
    monkeypatch.setattr(linear, "_MIN_SIZE", 1)
    yield request.param


def outputs_and_gradients(
    function: Callable[..., torch.Tensor], x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> list[torch.Tensor]:
    inputs = [tensor.detach().requires_grad_() for tensor in (x, weight, bias) if tensor is not None]
    output = function(*inputs, *([None] if bias is None else []))
    return [output, *torch.autograd.grad(output.sin().sum(), inputs)]


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_output_and_gradients_are_those_of_torch(kernel: str, shape: str, with_bias: bool) -> None:
    torch.manual_seed(0)
    x, weight, bias = SHAPES[shape](), torch.randn(8, 16), torch.randn(8) if with_bias else None
    actual = outputs_and_gradients(linear.linear, x, weight, bias)
    expected = outputs_and_gradients(nn.functional.linear, x, weight, bias)
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_onednn_is_what_runs_when_it_is_chosen(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(linear, "_onednn_linear", lambda *args: calls.append(args) or torch.zeros(3, 8))
    linear.Linear(16, 8)(torch.ones(3, 16))
    assert len(calls) == (1 if kernel == "onednn" else 0)


def test_onednn_gets_rows_that_lie_together(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Others take a kernel that is a hundred times slower: [256, 17] out of [256, 6, 17] did.
    layouts = []
    original = linear._onednn_linear

    def spy(x, weight, bias):
        layouts.extend(tensor.is_contiguous() or tensor.T.is_contiguous() for tensor in (x, weight))
        return original(x, weight, bias)

    monkeypatch.setattr(linear, "_onednn_linear", spy)
    layer = linear.Linear(16, 8)
    layer(torch.ones(5, 6, 16)[:, 0]).sum().backward()
    assert layouts == ([True] * 4 if kernel == "onednn" else [])


def test_activations_in_place_behind_the_layer_are_differentiated(kernel: str) -> None:
    layer = linear.Linear(16, 8)
    for shape in ((5, 16), (2, 3, 16)):
        x = torch.randn(*shape)
        in_place = nn.functional.elu(layer(x), inplace=True).square().sum()
        expected = nn.functional.elu(nn.functional.linear(x, layer.weight, layer.bias)).square().sum()
        torch.testing.assert_close(
            torch.autograd.grad(in_place, [*layer.parameters()]),
            torch.autograd.grad(expected, [*layer.parameters()]),
            rtol=1e-4,
            atol=1e-5,
        )


def test_second_derivatives_are_those_of_torch(kernel: str) -> None:
    def second(function: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        x, weight = torch.randn(5, 16, requires_grad=True), torch.randn(8, 16, requires_grad=True)
        output = function(x, weight, None).sin().sum()
        gradients = torch.autograd.grad(output, [x, weight], create_graph=True)
        return list(torch.autograd.grad(sum(g.square().sum() for g in gradients), [x, weight]))

    for ours, theirs in zip(second(linear.linear), second(nn.functional.linear), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_frozen_weights_get_no_gradient_and_the_input_does(kernel: str) -> None:
    layer = linear.Linear(16, 8).requires_grad_(False)
    x = torch.randn(5, 16, requires_grad=True)
    layer(x).sum().backward()
    torch.testing.assert_close(x.grad, layer.weight.sum(dim=0).expand(5, 16))
    assert layer.weight.grad is None


def test_double_precision_and_wrong_sizes_are_left_to_torch(kernel: str) -> None:
    layer = linear.Linear(16, 8)
    assert layer.double()(torch.ones(2, 16, dtype=torch.float64)).dtype == torch.float64
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        linear.Linear(16, 8)(torch.ones(2, 15))


def test_layer_exports_as_torchs_own_operator(kernel: str) -> None:
    layer = linear.Linear(16, 8)
    x = torch.randn(5, 16)
    exported = torch.export.export(layer, (x,))
    operators = [node.target for node in exported.graph.nodes if node.op == "call_function"]
    assert operators == [torch.ops.aten.linear.default]
    torch.testing.assert_close(exported.module()(x), layer(x))


def test_layer_copies_pickles_and_shares_its_state_dict_with_torch(kernel: str) -> None:
    layer = linear.Linear(16, 8)
    x = torch.randn(5, 16)
    saved = io.BytesIO()
    torch.save(layer.state_dict(), saved)
    saved.seek(0)
    theirs = nn.Linear(16, 8)
    theirs.load_state_dict(torch.load(saved, weights_only=True))
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), theirs):
        torch.testing.assert_close(other(x), layer(x))


def test_seed_reproduces_the_weights_without_the_global_generator() -> None:
    state = torch.get_rng_state()
    first, second, other = (
        linear.Linear(64, 32, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )
    torch.testing.assert_close(first.state_dict(), second.state_dict())
    assert not torch.equal(first.weight, other.weight)
    torch.testing.assert_close(torch.get_rng_state(), state)
    for parameter in (first.weight, first.bias):
        assert 0.1 < parameter.abs().max().item() <= 0.125


def test_environment_variable_chooses_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "_onednn_works", lambda: True)
    for mkl_is_slow in (True, False):
        monkeypatch.setattr(linear, "_mkl_is_slow", lambda slow=mkl_is_slow: slow)
        for value, expected in (("torch", False), ("onednn", True), ("", mkl_is_slow)):
            monkeypatch.setenv("MINERVA_LINEAR", value)
            assert linear._choose_onednn() is expected
    monkeypatch.setattr(linear, "_onednn_works", lambda: False)
    monkeypatch.setattr(linear, "_mkl_is_slow", lambda: True)
    monkeypatch.delenv("MINERVA_LINEAR")
    assert linear._choose_onednn() is False


def test_wrong_choice_of_kernel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINERVA_LINEAR", "mkl")
    with pytest.raises(ValueError, match="`MINERVA_LINEAR` must be `torch` or `onednn`, got `mkl`"):
        linear._choose_onednn()
    monkeypatch.setenv("MINERVA_LINEAR", "onednn")
    monkeypatch.setattr(linear, "_onednn_works", lambda: False)
    with pytest.raises(ValueError, match=r"`MINERVA_LINEAR` must not be `onednn` with torch .* Unset it\."):
        linear._choose_onednn()


@pytest.mark.parametrize(("vendor", "slow"), [("AuthenticAMD", True), ("GenuineIntel", False), (None, False)])
def test_mkl_is_slow_on_other_makers_cpus(
    vendor: str | None, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_text(path: pathlib.Path, encoding: str) -> str:
        if vendor is None:
            raise FileNotFoundError(path)
        return f"processor : 0\nvendor_id : {vendor}\n"

    monkeypatch.setattr(linear.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(linear.pathlib.Path, "read_text", read_text)
    assert linear._mkl_is_slow() is slow
