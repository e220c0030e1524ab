"""First weights of linear layers."""

import torch
from torch import nn

from minerva_acme import networks
from minerva_acme.networks import linear


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_seed_reproduces_the_weights_without_the_global_generator() -> None:
    state = torch.get_rng_state()
    first, second, other = (linear.uniform_linear(64, 32, seeded(seed)) for seed in (0, 0, 1))
    torch.testing.assert_close(first.state_dict(), second.state_dict())
    assert not torch.equal(first.weight, other.weight)
    orthogonal, again = (linear.orthogonal_linear(64, 32, 0.5, seeded()) for _ in range(2))
    torch.testing.assert_close(orthogonal.state_dict(), again.state_dict())
    assert torch.equal(torch.get_rng_state(), state)
    assert type(first) is type(orthogonal) is nn.Linear


def test_uniform_weights_and_biases_reach_up_to_one_over_the_root_of_the_inputs() -> None:
    layer = linear.uniform_linear(64, 512, seeded())
    for parameter in layer.parameters():
        assert 0.12 < parameter.max().item() <= 0.125
        assert -0.125 <= parameter.min().item() < -0.12


def test_orthogonal_weights_have_their_gain_and_no_bias() -> None:
    layer = linear.orthogonal_linear(8, 4, 3.0, seeded())
    torch.testing.assert_close(layer.weight @ layer.weight.T, 9.0 * torch.eye(4))
    assert (layer.bias == 0.0).all()


def test_without_a_generator_the_global_one_draws() -> None:
    torch.manual_seed(0)
    first = linear.uniform_linear(4, 4, None)
    second = linear.uniform_linear(4, 4, None)
    torch.manual_seed(0)
    assert torch.equal(linear.uniform_linear(4, 4, None).weight, first.weight)
    assert not torch.equal(first.weight, second.weight)


def test_the_seeded_layers_are_public() -> None:
    assert torch.equal(*(networks.uniform_linear(4, 3, seeded()).weight for _ in range(2)))
    for make in (networks.orthogonal_linear, networks.normal_linear):
        assert torch.equal(*(make(4, 3, 2.0, seeded()).weight for _ in range(2)))
