"""Layers on arrays give the outputs and the gradients that torch's give."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from minerva_acme import networks
from minerva_acme.acceleration import array_layers, kernels

M, SIZE = 12, 5  # samples, features of each


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


MODULES = {
    "linear": lambda: nn.Linear(SIZE, 3),
    "ReLU": lambda: networks.ReLUMLP(SIZE, (8, 6), generator=seeded()),
    "tanh": lambda: networks.TanhMLP(SIZE, (8, 6), generator=seeded()),
    "LayerNorm and ELU": lambda: networks.LayerNormMLP(SIZE, (8, 6, 4), generator=seeded()),
    "LayerNorm behind others": lambda: nn.Sequential(nn.Linear(SIZE, 6), nn.ReLU(), nn.LayerNorm(6)),
}


@pytest.fixture(params=["small", "large"])
def sizes(request, monkeypatch):
    """What is here is small; as if it were large, so that torch's kernels compute it."""
    if request.param == "large":
        monkeypatch.setattr(kernels, "MIN_SIZE", 1)
        monkeypatch.setattr(kernels.cpu, "has_avx512", lambda: True)
        monkeypatch.setattr(array_layers, "_MANY", 1)


@pytest.fixture(params=list(MODULES))
def module(request):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # for the modules of torch
        module = MODULES[request.param]()
    # Far from what weights are initially, so that no bias and no scale can be left out.
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.5 * torch.randn(parameter.shape, generator=seeded(1))
    return module


def compiled(module):
    parameters = array_layers.Parameters(module)
    chain = array_layers.make_chain([module], parameters.take)
    parameters.require_all_taken()
    return chain, parameters


def by_autograd(module, x, d_y):
    """Output, and the derivatives by the inputs and by each parameter."""
    x = torch.from_numpy(x).requires_grad_()
    y = module(x)
    d_x, *others = torch.autograd.grad(y, [x, *module.parameters()], torch.from_numpy(d_y))
    return y.detach(), d_x, dict(zip(module.parameters(), others, strict=True))


def assert_same(found, expected):
    """Equal up to rounding, which follows the largest number that was added up, not each sum."""
    largest = float(expected.abs().max())
    torch.testing.assert_close(torch.as_tensor(found), expected, rtol=2e-5, atol=1e-5 * largest)


def make_rows(module, seed=2):
    random = np.random.default_rng(seed)
    x = random.standard_normal((M, SIZE), np.float32)
    return x, random.standard_normal(compiled(module)[0].forward(x).shape, np.float32)


@pytest.mark.usefixtures("sizes")
def test_output_and_gradients_are_those_of_autograd(module):
    x, d_y = make_rows(module)
    y, d_x, gradients = by_autograd(module, x, d_y)
    chain, parameters = compiled(module)
    assert_same(chain.forward(x.copy()), y)
    assert_same(chain.backward(d_y.copy()), d_x)
    assert_same(parameters.gradient, torch.cat([gradient.flatten() for gradient in gradients.values()]))


@pytest.mark.usefixtures("sizes")
def test_the_gradient_by_the_inputs_can_be_left_out(module):
    x, d_y = make_rows(module)
    _, _, gradients = by_autograd(module, x, d_y)
    chain, parameters = compiled(module)
    chain.forward(x)
    assert chain.backward(d_y.copy(), inputs=False) is None
    assert_same(parameters.gradient, torch.cat([gradient.flatten() for gradient in gradients.values()]))


@pytest.mark.usefixtures("sizes")
def test_inputs_stay_as_they_are(module):
    x, d_y = make_rows(module)
    kept = x.copy()
    chain, _ = compiled(module)
    chain.forward(x)
    chain.backward(d_y)
    np.testing.assert_array_equal(x, kept)


def test_backward_belongs_to_the_latest_forward(module):
    x, d_y = make_rows(module)
    chain, _ = compiled(module)
    chain.forward(np.flip(x, axis=0).copy())
    chain.forward(x)
    assert_same(chain.backward(d_y.copy()), by_autograd(module, x, d_y)[1])


def test_copies_of_parameters_are_one_vector():
    module = MODULES["ReLU"]()
    parameters = array_layers.Parameters(module)
    chain = array_layers.make_chain([module], parameters.take)
    expected = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    np.testing.assert_array_equal(parameters.vector, expected)
    x, _ = make_rows(module)
    parameters.vector *= 2.0
    doubled = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in doubled.parameters():
            parameter.mul_(2.0)
    assert_same(chain.forward(x), doubled(torch.from_numpy(x)).detach())


UNKNOWN = {
    "GELU": lambda: nn.Sequential(nn.Linear(SIZE, 3), nn.GELU()),
    "another alpha": lambda: nn.Sequential(nn.Linear(SIZE, 3), nn.ELU(alpha=0.5)),
    "no bias": lambda: nn.Linear(SIZE, 3, bias=False),
    "a LayerNorm without weights": lambda: nn.Sequential(
        nn.Linear(SIZE, 3), nn.LayerNorm(3, elementwise_affine=False)
    ),
    "an activation first": lambda: nn.Sequential(nn.Tanh(), nn.Linear(SIZE, 3)),
    "residual blocks": lambda: networks.SimBa(SIZE, (8,), generator=seeded()),
    "float64": lambda: nn.Linear(SIZE, 3).double(),
    "a frozen parameter": lambda: nn.Linear(SIZE, 3).requires_grad_(False),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_what_is_not_known_is_refused(kind):
    with pytest.raises(array_layers.UnknownNetwork):
        compiled(UNKNOWN[kind]())


def test_a_parameter_that_no_layer_computes_with_is_refused():
    module = MODULES["linear"]()
    module.scale = nn.Parameter(torch.ones(()))
    with pytest.raises(array_layers.UnknownNetwork, match="no supported layer uses"):
        compiled(module)


def test_tied_layers_are_refused():
    layer = nn.Linear(SIZE, SIZE)
    with pytest.raises(array_layers.UnknownNetwork, match="used twice"):
        compiled(nn.Sequential(layer, nn.Tanh(), layer))


@pytest.mark.parametrize("shape", [(64, 128, 128), (256, 256, 256)])
def test_a_product_is_the_same_on_any_number_of_threads(shape, threads_are_given_back):
    rows, size_in, size_out = shape
    random = np.random.default_rng(0)
    a = random.standard_normal((rows, size_in), np.float32)
    b = random.standard_normal((size_out, size_in), np.float32)
    results = []
    for num_threads in (1, 2):
        torch.set_num_threads(num_threads)
        results.append(array_layers.product(a, b))
    np.testing.assert_array_equal(*results)
    np.testing.assert_allclose(results[0], a.astype(np.float64) @ b.T.astype(np.float64), atol=1e-4)
