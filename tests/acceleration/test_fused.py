"""What oneDNN fuses against the function itself."""

import platform
import threading
from collections.abc import Iterator

import pytest
import torch
from torch.nn import functional

from minerva_acme.acceleration import fused

DTYPES = [torch.float32, torch.bfloat16]


def layers(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    hidden = functional.elu(functional.linear(x, weight, bias))
    return functional.elu(functional.linear(hidden, weight, bias))


def tensors(
    num_rows: int, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(num_rows, 32), (32, 32), (32,)]
    x, weight, bias = (torch.randn(shape, generator=generator) for shape in shapes)
    return x.to(dtype), (0.3 * weight).to(dtype), bias.to(dtype)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every graph that is made, or None where there is nothing to fuse."""
    graphs: list[object] = []
    make_graph = fused._make_graph

    def make_and_note(*args: object) -> object:
        graphs.append(make_graph(*args))  # type: ignore[arg-type]
        return graphs[-1]

    monkeypatch.setattr(fused, "_make_graph", make_and_note)
    return graphs


@pytest.fixture
def works(made: list[object]) -> Iterator[None]:
    if not fused.works(torch.float32):
        pytest.skip("this torch or CPU fuses nothing")
    made.clear()
    yield
    assert not torch.jit.onednn_fusion_enabled()  # which is torch's default


def test_it_works_where_torch_has_onednn_on_x86() -> None:
    if platform.machine() != "x86_64" or not torch.backends.mkldnn.is_available():
        pytest.skip("oneDNN fuses on x86 alone")
    assert fused.works(torch.float32)


@pytest.mark.usefixtures("works")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_results_are_the_functions_from_the_first_call_on(dtype: torch.dtype, made: list[object]) -> None:
    if not fused.works(dtype):
        pytest.skip(f"this CPU has no products of {dtype}")
    made.clear()
    function = fused.Fused(layers)
    for num_rows in (64, 1, 17):
        args = tensors(num_rows, dtype)
        first = function(*args)
        tolerance = 1e-6 if dtype == torch.float32 else 0.05
        torch.testing.assert_close(first, layers(*args), rtol=tolerance, atol=tolerance)
        assert first.dtype == dtype
        for _ in range(4):
            assert torch.equal(function(*args), first)
        assert torch.equal(fused.Fused(layers)(*args), first)
    assert len(made) == 6 and None not in made


@pytest.mark.usefixtures("works")
def test_what_tensors_hold_may_change_in_place() -> None:
    function = fused.Fused(layers)
    x, weight, bias = tensors(64)
    before = function(x, weight, bias)
    weight.mul_(2.0)
    bias.add_(1.0)
    after = function(x, weight, bias)
    assert not torch.allclose(after, before)
    torch.testing.assert_close(after, layers(x, weight, bias), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("works")
def test_no_gradient_is_kept() -> None:
    x, weight, bias = tensors(64)
    assert not fused.Fused(layers)(x, weight.requires_grad_(), bias).requires_grad


@pytest.mark.usefixtures("works", "threads_are_given_back")
def test_each_shape_and_number_of_threads_is_compiled_once_up_to_a_limit(
    made: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "_MAX_GRAPHS", 3)
    function = fused.Fused(layers)
    torch.set_num_threads(1)
    for num_rows in (8, 9, 8, 9):
        function(*tensors(num_rows))
    torch.set_num_threads(2)
    function(*tensors(8))
    assert len(made) == 3
    args = tensors(10)
    assert torch.equal(function(*args), layers(*args))  # the function itself
    assert len(made) == 3


@pytest.mark.usefixtures("works", "threads_are_given_back")
def test_threads_may_call_at_once(made: list[object]) -> None:
    torch.set_num_threads(1)
    function = fused.Fused(layers)
    sizes = (400, 401)
    expected = {size: fused.Fused(layers)(*tensors(size)) for size in sizes}
    made.clear()
    wrong: list[str] = []
    start = threading.Barrier(4)

    def call(size: int) -> None:
        torch.set_num_threads(1)
        start.wait()
        for _ in range(100):
            if not torch.equal(function(*tensors(size)), expected[size]):
                wrong.append(f"{size} rows")

    threads = [threading.Thread(target=call, args=(size,)) for size in sizes * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(made) == 2


@pytest.mark.usefixtures("works")
def test_what_cannot_be_fused_is_the_function_itself(made: list[object]) -> None:
    def only_sums(x: torch.Tensor) -> torch.Tensor:
        return x.sum(dim=0)

    def bounded(x: torch.Tensor, low: torch.Tensor) -> torch.Tensor:  # oneDNN takes bounds for numbers
        return functional.elu(torch.clamp(x, low))

    x, low, _ = tensors(32)
    assert torch.equal(fused.Fused(only_sums)(x), only_sums(x))
    assert torch.equal(fused.Fused(bounded)(x, low), bounded(x, low))
    assert made == [None, None]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_it_works_nowhere_that_lacks_it(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    fused.works.cache_clear()
    monkeypatch.delattr(torch.jit, "trace")
    assert not fused.works(dtype)
    fused.works.cache_clear()
    monkeypatch.undo()
    monkeypatch.delattr(torch.jit, "enable_onednn_fusion")
    assert not fused.works(dtype)
    fused.works.cache_clear()


def test_it_does_not_work_where_results_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "_make_graph", lambda function, tensors: lambda *args: function(*args) + 1.0)
    fused.works.cache_clear()
    assert not fused.works(torch.float32)
    fused.works.cache_clear()


def test_float32_is_fused_only_where_its_products_are_faster_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "works", lambda dtype: True)
    for is_faster in (False, True):
        monkeypatch.setattr(fused.kernels, "uses_onednn", lambda is_faster=is_faster: is_faster)
        assert fused.pays(torch.float32) == is_faster
        assert fused.pays(torch.bfloat16)
    monkeypatch.setattr(fused, "works", lambda dtype: False)
    assert not fused.pays(torch.float32) and not fused.pays(torch.bfloat16)
