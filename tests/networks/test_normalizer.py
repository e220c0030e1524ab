import numpy as np
import pytest
import torch

from minerva_acme import networks, specs


def random_rows(num_rows: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return 3.0 * torch.randn(num_rows, 4, generator=generator) + torch.tensor([0.0, 5.0, -5.0, 100.0])


def test_statistics_are_those_of_all_rows_however_they_came() -> None:
    x = random_rows(1000)
    at_once, in_parts = networks.RunningNorm(4), networks.RunningNorm(4)
    at_once.update(x.reshape(10, 100, 4))
    for part in x.split([1, 2, 497, 500]):
        in_parts.update(part)
    for norm in (at_once, in_parts):
        torch.testing.assert_close(norm.mean, x.mean(dim=0), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(norm.var, x.var(dim=0, correction=0), rtol=1e-2, atol=1e-3)
        torch.testing.assert_close(norm.count, torch.tensor(1000.0, dtype=torch.float64), rtol=0.0, atol=2e-4)


def test_what_lies_between_the_means_of_batches_is_variance() -> None:
    norm = networks.RunningNorm(1)
    for value in (0.0, 4.0, 4.0, 0.0):
        norm.update(torch.full((500, 1), value))
    torch.testing.assert_close(norm.mean, torch.tensor([2.0]), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(norm.var, torch.tensor([4.0]), rtol=1e-5, atol=1e-5)


def test_the_first_rows_set_the_mean_however_far_from_0_they_are() -> None:
    x = 10.0 * torch.randn(256, 1, generator=torch.Generator().manual_seed(0)) + 101_325.0
    norm = networks.RunningNorm(1)
    norm.update(torch.full((5, 1), torch.nan))  # none is taken
    norm.update(x)
    torch.testing.assert_close(norm.mean, x.mean(dim=0), rtol=1e-6, atol=0.0)
    torch.testing.assert_close(norm.var, x.var(dim=0, correction=0), rtol=1e-3, atol=0.0)


def test_forward_never_changes_the_statistics() -> None:
    norm = networks.RunningNorm(4).train()
    norm.update(random_rows(10))
    before = {name: tensor.clone() for name, tensor in norm.state_dict().items()}
    first = norm(random_rows(50))
    torch.testing.assert_close(norm(random_rows(50)), first)
    torch.testing.assert_close(dict(norm.state_dict()), before)


def test_output_is_standardised_and_clipped() -> None:
    norm = networks.RunningNorm(2)
    norm.mean.copy_(torch.tensor([1.0, 0.0]))
    norm.var.copy_(torch.tensor([4.0, 0.0]))
    torch.testing.assert_close(
        norm(torch.tensor([[5.0, 1.0], [-99.0, 0.0]])), torch.tensor([[2.0, 10.0], [-10.0, 0.0]])
    )


def test_fresh_normaliser_only_clips() -> None:
    x = torch.tensor([[0.5, -20.0]])
    torch.testing.assert_close(networks.RunningNorm(2)(x), torch.tensor([[0.5, -10.0]]))


def test_gradient_flows_to_the_input_and_not_to_the_statistics() -> None:
    norm = networks.RunningNorm(4)
    x = random_rows(10).requires_grad_()
    norm.update(x)
    norm(x).sum().backward()
    torch.testing.assert_close(x.grad, norm.var.rsqrt().expand(10, 4))
    assert not [*norm.parameters()]


def test_state_dict_carries_the_statistics() -> None:
    norm, copy = networks.RunningNorm(4), networks.RunningNorm(4)
    norm.update(random_rows(10))
    copy.load_state_dict(norm.state_dict())
    x = random_rows(20)
    torch.testing.assert_close(copy(x), norm(x))
    copy.update(x)
    norm.update(x)
    torch.testing.assert_close(dict(copy.state_dict()), dict(norm.state_dict()))


@pytest.mark.parametrize("shape", [(3, 5), (0, 4), ()])
def test_rows_of_another_size_and_no_rows_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"`x` must have shape \[..., 4\] and hold a row, got \["):
        networks.RunningNorm(4).update(torch.zeros(shape))


def test_no_features_are_refused() -> None:
    with pytest.raises(ValueError, match="`size` must be >= 1, got 0"):
        networks.RunningNorm(0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e30, 1e19, -1.1e15])
def test_extreme_rows_are_left_out_and_the_others_are_taken(bad: float) -> None:
    norm, other = networks.RunningNorm(4), networks.RunningNorm(4)
    for each in (norm, other):
        assert each.update(random_rows(10)).item() == 0
    rows = random_rows(5)
    other.update(rows[[0, 1, 4]])
    rows[2, 0], rows[3, 1] = bad, -bad
    assert norm.update(rows).item() == 2
    torch.testing.assert_close(dict(norm.state_dict()), dict(other.state_dict()))


def test_rows_that_are_all_extreme_change_nothing() -> None:
    norm = networks.RunningNorm(4)
    norm.update(random_rows(10))
    before = {name: tensor.clone() for name, tensor in norm.state_dict().items()}
    assert norm.update(torch.full((3, 4), 1e30)).item() == 3
    torch.testing.assert_close(dict(norm.state_dict()), before, rtol=0.0, atol=0.0)


def test_the_largest_rows_that_are_taken_leave_the_variance_finite() -> None:
    norm = networks.RunningNorm(1)
    norm.count.fill_(1e12)
    norm.mean.fill_(-1e15)
    for _ in range(3):
        assert norm.update(torch.tensor([[1e15], [-1e15]]).repeat(5000, 1)).item() == 0
    assert all(torch.isfinite(tensor).all() for tensor in norm.state_dict().values())
    assert norm.var.item() > 0.0


def test_count_does_not_stand_still_in_a_long_run() -> None:
    norm = networks.RunningNorm(1)
    norm.count.fill_(2.0**24)  # where float32 knows even numbers only
    for _ in range(3):
        norm.update(torch.zeros(1, 1))
    assert norm.count.item() == 2.0**24 + 3
    assert norm.mean.dtype == norm.var.dtype == torch.float32


@pytest.mark.parametrize("shape", [(), (3,), (5, 2), (5, 2, 1)])
def test_scale_divides_rewards_of_any_shape_by_the_standard_deviation_alone(shape: tuple[int, ...]) -> None:
    norm = networks.RunningNorm(1)
    norm.mean.fill_(100.0)
    norm.var.fill_(4.0)
    x = torch.randn(shape)
    torch.testing.assert_close(norm.scale(x), x / 2.0)
    torch.testing.assert_close(norm.scale(torch.full(shape, 50.0)), torch.full(shape, 10.0))
    torch.testing.assert_close(norm.scale(torch.full(shape, -50.0)), torch.full(shape, -10.0))


def test_scale_of_several_features_goes_by_each() -> None:
    norm = networks.RunningNorm(2)
    norm.var.copy_(torch.tensor([4.0, 0.25]))
    torch.testing.assert_close(norm.scale(torch.ones(3, 2)), torch.tensor([[0.5, 2.0]]).expand(3, 2))


NEST = {
    "camera": specs.Array((4, 4, 3), np.uint8),
    "gear": specs.DiscreteArray(3),
    "joints": [specs.Array((2, 2), np.float32), specs.Array((), np.int64)],
}


def test_each_number_of_a_nest_has_statistics_of_its_own_whatever_its_shape() -> None:
    norm = networks.make_normalizer(NEST)
    nest = {
        "camera": torch.zeros(2, 1, 4, 4, 3, dtype=torch.uint8),
        "gear": torch.tensor([[1], [2]]),
        "joints": [torch.tensor([[[[0.0, 1], [5, 9]]], [[[4.0, 1], [5, -9]]]]), torch.tensor([[6], [10]])],
    }
    names = []
    for name, part, rows in norm.parts("it", nest):
        names.append(name)
        part.update(rows)
    assert names == ["it['joints'][0]", "it['joints'][1]"]
    variances = torch.cat([value for name, value in norm.state_dict().items() if name.endswith("var")])
    torch.testing.assert_close(variances, torch.tensor([4.0, 0, 0, 81, 4]), rtol=1e-3, atol=3e-3)
    out = norm(nest)
    assert out["camera"] is nest["camera"] and out["gear"] is nest["gear"]
    expected = torch.tensor([[[[-1.0, 0], [0, 1]]], [[[1.0, 0], [0, -1]]]])
    torch.testing.assert_close(out["joints"][0], expected, rtol=1e-3, atol=3e-2)
    torch.testing.assert_close(out["joints"][1], torch.tensor([[-1.0], [1.0]]), rtol=1e-3, atol=1e-3)


def test_a_vector_has_a_plain_normaliser_and_what_holds_no_numbers_has_none() -> None:
    assert type(networks.make_normalizer(specs.Array((3,), np.float32))) is networks.RunningNorm
    assert networks.make_normalizer((NEST["camera"], NEST["gear"])) is None
