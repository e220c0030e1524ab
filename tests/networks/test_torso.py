import pytest
import torch
from torch import nn

from minerva_acme import networks


def test_layers_are_linear_layer_norm_tanh_then_linear_elu() -> None:
    torso = networks.LayerNormMLP(5, (16, 12, 8), generator=torch.Generator().manual_seed(0))
    first, norm, _, second, _, third, _ = torso
    x = torch.randn(7, 5)
    h = torch.tanh(nn.functional.layer_norm(first(x), (16,), norm.weight, norm.bias))
    expected = nn.functional.elu(third(nn.functional.elu(second(h))))
    torch.testing.assert_close(torso(x), expected)
    assert torso.output_size == 8


def test_activations_in_place_change_neither_input_nor_gradients() -> None:
    torso = networks.LayerNormMLP(5, (16, 12), generator=torch.Generator().manual_seed(0))
    reference = nn.Sequential(torso[0], torso[1], nn.Tanh(), torso[3], nn.ELU())
    for shape in ((7, 5), (2, 3, 5)):
        x = torch.randn(*shape, requires_grad=True)
        before = x.detach().clone()
        gradients = [
            torch.autograd.grad(module(x).square().sum(), [x, *torso.parameters()])
            for module in (torso, reference)
        ]
        torch.testing.assert_close(x.detach(), before)
        for ours, theirs in zip(*gradients, strict=True):
            torch.testing.assert_close(ours, theirs)
    with torch.no_grad():
        torch.testing.assert_close(torso(x), reference(x))


@pytest.mark.parametrize("torso", [networks.LayerNormMLP, networks.ReLUMLP, networks.TanhMLP, networks.SimBa])
def test_rows_of_more_axes_have_the_same_gradients_and_none_is_copied(torso: type[networks.SimBa]) -> None:
    network = torso(3, (8, 8), generator=torch.Generator().manual_seed(0))
    x, direction = torch.randn(4, 5, 3, requires_grad=True), torch.randn(4, 5, 8)
    output = network(x)
    found = torch.autograd.grad((output * direction).sum(), [x, *network.parameters()], retain_graph=True)
    rows = x.flatten(0, 1)
    by_rows = (network(rows) * direction.flatten(0, 1)).sum()
    wanted = torch.autograd.grad(by_rows, [x, *network.parameters()])
    assert all(map(torch.equal, found, wanted))
    names, left = [], [output.grad_fn]
    for node in left:
        names.append(node.name())
        left += [following for following, _ in node.next_functions if following is not None]
    assert len(names) > 5 and not any("CopySlices" in name for name in names)


def test_one_layer_is_enough_and_its_output_is_within_one() -> None:
    output = networks.LayerNormMLP(5, (16,))(1e3 * torch.randn(7, 5))
    assert output.shape == (7, 16)
    assert output.abs().max().item() <= 1.0


def test_untrained_torso_sees_the_scale_of_its_input() -> None:
    torso = networks.LayerNormMLP(1, (16, 16), generator=torch.Generator().manual_seed(0))
    assert (torso(torch.tensor([[0.5]])) - torso(torch.tensor([[2.0]]))).abs().max().item() > 0.05


@pytest.mark.parametrize("layer_sizes", [(), (16, 0)])
def test_missing_or_empty_layers_are_refused(layer_sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="`layer_sizes` must hold at least one size, all >= 1, got"):
        networks.LayerNormMLP(5, layer_sizes)
    for torso in (networks.TanhMLP, networks.ReLUMLP, networks.SimBa):
        with pytest.raises(ValueError, match="`layer_sizes` must hold at least one size, all >= 1, got"):
            torso(5, layer_sizes)


def test_layers_that_the_machine_cannot_hold_are_refused_beforehand() -> None:
    for torso in (networks.LayerNormMLP, networks.TanhMLP, networks.ReLUMLP, networks.SimBa):
        with pytest.raises(
            ValueError, match=r"`layer_sizes` must be sizes that .* GB .* for inputs of 1000000."
        ):
            torso(1_000_000, (1_000_000,))


def make_tanh_mlp(seed: int = 0) -> networks.TanhMLP:
    return networks.TanhMLP(5, (64, 32, 48), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("leading", [(), (7,), (2, 3)])
def test_tanh_mlp_is_linear_and_tanh(leading: tuple[int, ...]) -> None:
    torso, x = make_tanh_mlp(), torch.randn(*leading, 5)
    before = expected = x.clone()
    for layer in [*torso][::2]:
        expected = torch.tanh(expected @ layer.weight.T + layer.bias)
    output = torso(x)
    assert output.shape == (*leading, torso.output_size)
    torch.testing.assert_close(output, expected)
    assert torch.equal(x, before)


@pytest.mark.parametrize("torso", [networks.LayerNormMLP, networks.TanhMLP, networks.ReLUMLP])
def test_layers_are_plain_torch_whose_hooks_fire(torso: type[nn.Sequential]) -> None:
    layers = torso(5, (8, 6))
    assert {type(layer) for layer in layers} <= {nn.Linear, nn.LayerNorm, nn.Tanh, nn.ELU, nn.ReLU}
    fired = []
    for index, layer in enumerate(layers):
        layer.register_forward_hook(lambda *_, index=index: fired.append(index))
    layers(torch.zeros(2, 5))
    assert fired == [*range(len(layers))]


def test_tanh_mlp_starts_orthogonal_with_gain_root_two_and_zero_bias() -> None:
    for layer in [*make_tanh_mlp()][::2]:
        weight = layer.weight.detach()
        gram = weight.T @ weight if weight.shape[0] > weight.shape[1] else weight @ weight.T
        torch.testing.assert_close(gram, 2.0 * torch.eye(len(gram)), rtol=0.0, atol=1e-5)
        assert layer.bias.abs().max().item() == 0.0


def test_seed_reproduces_tanh_mlp_without_the_global_generator() -> None:
    state = torch.get_rng_state()
    torch.testing.assert_close(make_tanh_mlp(3).state_dict(), make_tanh_mlp(3).state_dict())
    assert not torch.equal(make_tanh_mlp(3)[0].weight, make_tanh_mlp(4)[0].weight)
    assert torch.equal(torch.get_rng_state(), state)


def norm(x: torch.Tensor, layer: nn.LayerNorm) -> torch.Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    return (
        centred / (centred.square().mean(dim=-1, keepdim=True) + layer.eps).sqrt() * layer.weight + layer.bias
    )


def test_simba_adds_what_its_blocks_compute_to_what_they_are_given() -> None:
    generator = torch.Generator().manual_seed(0)
    torso = networks.SimBa(5, (8, 8), generator=generator)
    for parameter in torso.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    embedding, *blocks, last = torso
    x = torch.randn(2, 7, 5, generator=generator)
    h = x @ embedding.weight.T + embedding.bias
    for block in blocks:
        hidden = (norm(h, block.norm) @ block.expand.weight.T + block.expand.bias).clamp(min=0.0)
        assert hidden.shape == (2, 7, 32)
        h = h + hidden @ block.contract.weight.T + block.contract.bias
    torch.testing.assert_close(torso(x), norm(h, last))
    assert torso.output_size == 8


def test_untrained_simba_does_not_stretch_and_its_blocks_add_twice_the_variance() -> None:
    torso = networks.SimBa(64, (128,), generator=torch.Generator().manual_seed(0))
    x = torch.randn(500, 64, generator=torch.Generator().manual_seed(1))
    embedded = torso[0](x)
    torch.testing.assert_close(embedded.norm(dim=-1), x.norm(dim=-1), rtol=1e-4, atol=1e-4)
    block = torso[1]
    added = block(embedded) - embedded
    assert added.std().item() == pytest.approx(2.0**0.5, rel=0.1)
    assert all(not layer.bias.any() for layer in (torso[0], block.expand, block.contract))


def test_blocks_of_different_widths_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"SimBa has one entry of `layer_sizes` .* must be equal, got \(16, 8\)"
    ):
        networks.SimBa(5, (16, 8))


def test_units_are_brought_to_norm_one_and_keep_their_direction() -> None:
    torso = networks.SimBa(5, (8, 8), generator=torch.Generator().manual_seed(0))
    torso[1].expand.weight.data[3] = 0.0  # has no direction
    layers = [layer for layer in torso.modules() if isinstance(layer, nn.Linear)]
    before = {name: value.clone() for name, value in torso.state_dict().items()}
    directions = [layer.weight / layer.weight.norm(dim=1, keepdim=True) for layer in layers]
    networks.project_to_unit_norm(torso)
    for layer, direction in zip(layers, directions, strict=True):
        torch.testing.assert_close(layer.weight, direction.nan_to_num())
    assert len(layers) == 5
    others = [name for name in before if before[name].ndim == 1]
    assert all(torch.equal(torso.state_dict()[name], before[name]) for name in others)


def test_a_target_is_brought_to_norm_one_where_the_online_network_is_not_frozen() -> None:
    online, target = (
        networks.SimBa(5, (8, 8), generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)
    )
    target.requires_grad_(False)
    online[1].expand.requires_grad_(False)
    before = target[1].expand.weight.clone()
    networks.project_to_unit_norm(target, online)
    assert torch.equal(target[1].expand.weight, before)
    for layer in (target[0], target[1].contract, target[2].expand, target[2].contract):
        torch.testing.assert_close(layer.weight.norm(dim=1), torch.ones(len(layer.weight)))


def test_layers_of_a_relu_mlp_are_linear_and_relu() -> None:
    torso = networks.ReLUMLP(5, (16, 12), generator=torch.Generator().manual_seed(0))
    first, _, second, _ = torso
    x = torch.randn(7, 5)
    h = (x @ first.weight.T + first.bias).clamp(min=0.0)
    torch.testing.assert_close(torso(x), (h @ second.weight.T + second.bias).clamp(min=0.0))
    assert torso.output_size == 12
    assert first.weight.abs().max() <= 5**-0.5 and second.weight.abs().max() <= 16**-0.5


def norms_of(torso: nn.Module) -> list[nn.BatchNorm1d]:
    return [layer for layer in torso.children() if isinstance(layer, nn.BatchNorm1d)]


def linears_of(torso: nn.Module) -> list[nn.Linear]:
    return [layer for layer in torso.children() if isinstance(layer, nn.Linear)]


def in_float64(torso: nn.Module, x: torch.Tensor, statistics: str) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """What a `BatchNormMLP` computes, with the batch's or the running statistics; mean, var of each norm."""
    h, moments = x.double().flatten(0, -2), []
    norms = norms_of(torso)
    for norm, linear in zip(norms, [*linears_of(torso), None], strict=True):
        own = [h.mean(dim=0), (h - h.mean(dim=0)).square().mean(dim=0)]
        mean, var = own if statistics == "batch" else [norm.running_mean.double(), norm.running_var.double()]
        moments += own
        h = (h - mean) / (var + 1e-3).sqrt() * norm.weight.double() + norm.bias.double()
        h = h if norm is norms[0] else h.clamp(min=0.0)
        h = h if linear is None else h @ linear.weight.double().T
    return h.unflatten(0, x.shape[:-1]), moments


def make_batch_norm_mlp(*sizes: int) -> networks.BatchNormMLP:
    """One whose statistics and affine maps are far from 0 and 1."""
    generator = torch.Generator().manual_seed(0)
    torso = networks.BatchNormMLP(sizes[0], sizes[1:], generator=generator)
    for norm in norms_of(torso):
        for tensor in (norm.weight, norm.bias, norm.running_mean):
            tensor.data.copy_(torch.randn(tensor.shape, generator=generator))
        norm.running_var.copy_(3.0 * torch.rand(norm.running_var.shape, generator=generator) + 0.1)
    return torso


@pytest.mark.parametrize("shape", [(64,), (4, 3), (2, 3, 4)])
def test_batch_norm_stands_before_each_activation_and_at_the_input(shape: tuple[int, ...]) -> None:
    torso = make_batch_norm_mlp(5, 16, 12)
    x = 3.0 * torch.randn(*shape, 5, generator=torch.Generator().manual_seed(1)) + 2.0
    before = [[norm.running_mean.clone(), norm.running_var.clone()] for norm in norms_of(torso)]
    expected, moments = in_float64(torso.train(), x, "batch")
    torch.testing.assert_close(torso(x).double(), expected, rtol=1e-4, atol=1e-4)
    n = x[..., 0].numel()
    for norm, (mean, var), batch_mean, batch_var in zip(
        norms_of(torso), before, moments[::2], moments[1::2], strict=True
    ):
        torch.testing.assert_close(norm.running_mean, (0.99 * mean + 0.01 * batch_mean).float())
        unbiased = batch_var * n / (n - 1)
        torch.testing.assert_close(norm.running_var, (0.99 * var + 0.01 * unbiased).float())
    state = {name: tensor.clone() for name, tensor in torso.state_dict().items()}
    expected, _ = in_float64(torso.eval(), x, "running")
    torch.testing.assert_close(torso(x).double(), expected, rtol=1e-4, atol=1e-4)
    assert expected.std() > 0.1 and torso.output_size == 12
    assert all(torch.equal(tensor, state[name]) for name, tensor in torso.state_dict().items())


def test_an_untrained_batch_norm_mlp_has_no_biases_and_orthogonal_weights() -> None:
    torso = networks.BatchNormMLP(16, (16, 16), generator=torch.Generator().manual_seed(0))
    again = networks.BatchNormMLP(16, (16, 16), generator=torch.Generator().manual_seed(0))
    for linear, same in zip(linears_of(torso), linears_of(again), strict=True):
        assert linear.bias is None and torch.equal(linear.weight, same.weight)
        torch.testing.assert_close(linear.weight @ linear.weight.T, 2.0 * torch.eye(16))


def test_behind_batch_norm_the_scale_of_weights_changes_nothing() -> None:
    torso = networks.BatchNormMLP(5, (16, 12), generator=torch.Generator().manual_seed(0))
    x = torch.randn(64, 5, generator=torch.Generator().manual_seed(1))
    before = torso(x)
    networks.project_to_unit_norm(torso)
    norms = [linear.weight.norm(dim=1) for linear in linears_of(torso)]
    torch.testing.assert_close(torch.cat(norms), torch.ones(28))
    torch.testing.assert_close(torso(x), before, rtol=0.01, atol=0.01)  # but for the epsilon
