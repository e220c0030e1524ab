"""The fast layers against torch's own, by oneDNN's kernel and by torch's."""

import copy
import io
import pickle
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from minerva_acme import networks
from minerva_acme.acceleration import kernels
from tests.closeness import assert_close_to_norm

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
    if request.param == "onednn" and not kernels._onednn_works():
        pytest.skip("this torch has no oneDNN linear kernel")
    monkeypatch.setattr(kernels, "uses_onednn", lambda: request.param == "onednn")
    monkeypatch.setattr(kernels, "MIN_SIZE", 1)
    monkeypatch.setattr(kernels.cpu, "has_avx512", lambda: True)
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
    actual = outputs_and_gradients(kernels.linear, x, weight, bias)
    expected = outputs_and_gradients(nn.functional.linear, x, weight, bias)
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_onednn_is_what_runs_when_it_is_chosen(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(kernels, "_onednn_linear", lambda *args: calls.append(args) or torch.zeros(3, 8))
    kernels.Linear(16, 8)(torch.ones(3, 16))
    assert len(calls) == (1 if kernel == "onednn" else 0)


def test_onednn_gets_rows_that_lie_together(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Others take a kernel that is a hundred times slower: [256, 17] out of [256, 6, 17] did.
    layouts = []
    original = kernels._onednn_linear

    def spy(x, weight, bias):
        layouts.extend(tensor.is_contiguous() or tensor.T.is_contiguous() for tensor in (x, weight))
        return original(x, weight, bias)

    monkeypatch.setattr(kernels, "_onednn_linear", spy)
    layer = kernels.Linear(16, 8)
    layer(torch.ones(5, 6, 16)[:, 0]).sum().backward()
    assert layouts == ([True] * 4 if kernel == "onednn" else [])


def test_activations_in_place_behind_the_layer_are_differentiated(kernel: str) -> None:
    layer = kernels.Linear(16, 8)
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

    for ours, theirs in zip(second(kernels.linear), second(nn.functional.linear), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


TRANSFORMS: dict[str, Callable[[Callable[..., torch.Tensor], torch.Tensor, torch.Tensor], object]] = {
    "grad": lambda linear, x, v: torch.func.grad(lambda x: linear(x).sin().sum())(x),
    "jvp": lambda linear, x, v: torch.func.jvp(linear, (x,), (v,)),
    "vmap": lambda linear, x, v: torch.func.vmap(linear)(torch.stack([x, v])),
    "forward mode": lambda linear, x, v: _forward_mode(linear, x, v),
}


def _forward_mode(linear: Callable[..., torch.Tensor], x: torch.Tensor, v: torch.Tensor) -> object:
    with torch.autograd.forward_ad.dual_level():
        return [*torch.autograd.forward_ad.unpack_dual(linear(torch.autograd.forward_ad.make_dual(x, v)))]


@pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is deprecated:DeprecationWarning"
)  # by torch's own jvp
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_of_torch_func_are_those_of_torch(kernel: str, transform: str) -> None:
    torch.manual_seed(0)
    x, v, weight, bias = torch.randn(33, 16), torch.randn(33, 16), torch.randn(8, 16), torch.randn(8)
    found, expected = (
        TRANSFORMS[transform](lambda x, linear=linear: linear(x, weight, bias), x, v)
        for linear in (kernels.linear, nn.functional.linear)
    )
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_frozen_weights_get_no_gradient_and_the_input_does(kernel: str) -> None:
    layer = kernels.Linear(16, 8).requires_grad_(False)
    x = torch.randn(5, 16, requires_grad=True)
    layer(x).sum().backward()
    torch.testing.assert_close(x.grad, layer.weight.sum(dim=0).expand(5, 16))
    assert layer.weight.grad is None


def test_double_precision_and_wrong_sizes_are_left_to_torch(kernel: str) -> None:
    layer = kernels.Linear(16, 8)
    assert layer.double()(torch.ones(2, 16, dtype=torch.float64)).dtype == torch.float64
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        kernels.Linear(16, 8)(torch.ones(2, 15))


def test_layer_exports_as_torchs_own_operator(kernel: str) -> None:
    layer = kernels.Linear(16, 8)
    x = torch.randn(5, 16)
    exported = torch.export.export(layer, (x,))
    operators = [node.target for node in exported.graph.nodes if node.op == "call_function"]
    assert operators == [torch.ops.aten.linear.default]
    torch.testing.assert_close(exported.module()(x), layer(x))


def test_layer_copies_pickles_and_shares_its_state_dict_with_torch(kernel: str) -> None:
    layer = kernels.Linear(16, 8)
    x = torch.randn(5, 16)
    saved = io.BytesIO()
    torch.save(layer.state_dict(), saved)
    saved.seek(0)
    theirs = nn.Linear(16, 8)
    theirs.load_state_dict(torch.load(saved, weights_only=True))
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), theirs):
        torch.testing.assert_close(other(x), layer(x))


def test_layers_change_in_place_and_parameters_hooks_and_state_dict_stay(kernel: str) -> None:
    network = networks.LayerNormMLP(16, (8, 4))
    expected = copy.deepcopy(network)
    parameters = [*network.parameters()]
    calls: list[str] = []
    network[0].register_forward_hook(lambda *_: calls.append("hook"))
    assert kernels.use_kernels(network) == 2
    assert [type(layer) for layer in network] == [
        kernels.Linear,
        nn.LayerNorm,
        nn.Tanh,
        kernels.Linear,
        nn.ELU,
    ]
    assert all(ours is theirs for ours, theirs in zip(network.parameters(), parameters, strict=True))
    assert network.state_dict().keys() == expected.state_dict().keys()
    x = torch.randn(5, 16)
    assert_close_to_norm(network(x), expected(x))
    assert calls == ["hook"]
    assert kernels.use_kernels(network) == 0  # they are known to be fast already


def test_layers_that_may_compute_something_else_stay(kernel: str) -> None:
    class Doubling(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return 2.0 * super().forward(input)

    replaced = nn.Linear(4, 4)
    replaced.forward = lambda input: input  # type: ignore[method-assign]
    network = nn.Sequential(Doubling(4, 4), replaced, nn.Linear(4, 4))
    assert kernels.use_kernels(network) == 1
    assert [type(layer) for layer in network] == [Doubling, nn.Linear, kernels.Linear]
    assert [kernels.plain_type(layer) for layer in network] == [Doubling, nn.Linear, nn.Linear]


def rounded(forward: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """An edit of a class of layers, smaller than any tolerance for a few of them."""
    return lambda self, input: forward(self, input.round(decimals=2))


@pytest.mark.parametrize("is_later", [False, True])
def test_an_edited_class_of_torch_is_what_computes(
    kernel: str,
    is_later: bool,
    monkeypatch: pytest.MonkeyPatch,
    said: Callable[[], list[str]],
) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4))
    plain, x = copy.deepcopy(network), torch.randn(33, 16)
    if is_later:
        kernels.use_kernels(network)
    monkeypatch.setattr(nn.Linear, "forward", rounded(nn.Linear.forward))
    if not is_later:
        assert kernels.use_kernels(network) == 0
    with torch.no_grad():
        assert_close_to_norm(network(x), plain(x))
        assert_close_to_norm(torch.compile(network, backend="eager", fullgraph=True)(x), plain(x))
    assert said() == ["Linear: plain torch: its forward was replaced"]


@pytest.mark.parametrize("works", [True, False])
@pytest.mark.parametrize("mkl_is_slow", [True, False])
def test_onednn_is_chosen_where_it_works_and_mkl_is_slow(
    monkeypatch: pytest.MonkeyPatch, mkl_is_slow: bool, works: bool
) -> None:
    monkeypatch.setattr(kernels, "_onednn_works", lambda: works)
    monkeypatch.setattr(kernels.cpu, "mkl_is_slow", lambda: mkl_is_slow)
    assert kernels.uses_onednn.__wrapped__() is (mkl_is_slow and works)


@pytest.mark.parametrize(
    ("has_avx512", "num_rows", "transposed", "suits"),
    [
        (True, 31, False, False),
        (True, 32, False, True),
        (True, 32, True, True),
        (False, 32, False, False),
        (False, 4095, False, False),
        (False, 4096, False, True),
        (False, 4096, True, False),
    ],
)
def test_onednn_takes_what_it_multiplies_faster_on_this_kind_of_cpu(
    has_avx512: bool, num_rows: int, transposed: bool, suits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels.cpu, "has_avx512", lambda: has_avx512)
    x = torch.zeros(256, num_rows).T if transposed else torch.zeros(num_rows, 256)
    assert kernels._suits_onednn(x, torch.zeros(256, 256)) is suits
