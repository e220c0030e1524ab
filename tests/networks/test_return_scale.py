"""The running scale of returns, and bins that hold scaled returns."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from minerva_acme import networks


def sums(size: int, seed: int, scale: float = 1.0, mean: float = 0.0) -> torch.Tensor:
    return scale * torch.randn(size, 1, generator=torch.Generator().manual_seed(seed)) + mean


def make_scale(*batches: torch.Tensor, bound: float = 5.0) -> networks.ReturnScale:
    scale = networks.ReturnScale(bound)
    for batch in batches:
        scale.update(batch)
    return scale


def by_hand(*batches: torch.Tensor, bound: float = 5.0) -> float:
    rows = torch.cat(batches).double().numpy()
    return max(math.sqrt(np.var(rows) + 1e-8), np.abs(rows).max() / bound)


@pytest.mark.parametrize(
    ("scales", "mean"), [((3.0, 7.0), 1.0), ((7.0, 0.1), -1.0), ((1.0, 1.0), 40.0)], ids=str
)
def test_scale_is_the_standard_deviation_or_the_largest_sum_over_the_bound(
    scales: tuple[float, float], mean: float
) -> None:
    batches = [sums(50, seed, scale, mean) for seed, scale in enumerate(scales)]
    found = make_scale(*batches).value.item()
    assert found == pytest.approx(by_hand(*batches), rel=1e-4)
    assert make_scale(*batches, bound=0.5).value.item() == pytest.approx(
        by_hand(*batches, bound=0.5), rel=1e-4
    )


def test_both_rules_decide_somewhere() -> None:
    spread, far = sums(50, 0), sums(50, 1, mean=40.0)
    assert make_scale(spread).value.item() == pytest.approx(spread.std(correction=0).item(), rel=1e-4)
    assert make_scale(far).value.item() == pytest.approx(far.abs().max().item() / 5.0, rel=1e-6)
    assert make_scale(-far).value.item() == make_scale(far).value.item()


def test_the_largest_sum_is_kept() -> None:
    scale = make_scale(torch.tensor([[-90.0]]), sums(2000, 0))
    assert scale.value.item() == pytest.approx(18.0)


def test_sums_that_are_not_finite_are_left_out() -> None:
    good = sums(20, 0, mean=30.0)
    bad = torch.tensor([[float("nan")], [float("inf")], [-1e30]])
    scale = networks.ReturnScale(5.0)
    assert scale.update(torch.cat([good, bad])) == 3
    assert scale.value.item() == pytest.approx(by_hand(good), rel=1e-4)


def test_without_a_reward_the_scale_is_above_0() -> None:
    scale = make_scale(torch.zeros(8, 1))
    assert 0.0 < scale.value.item() < 0.01
    assert scale(torch.zeros(3)).tolist() == [0.0] * 3


def test_returns_of_any_shape_are_divided() -> None:
    scale, returns = (
        make_scale(sums(50, 0, 4.0)),
        torch.randn(2, 3, generator=torch.Generator().manual_seed(1)),
    )
    torch.testing.assert_close(scale(returns), returns / by_hand(sums(50, 0, 4.0)), rtol=1e-4, atol=0.0)


@pytest.mark.parametrize("bound", [0.0, -1.0, float("inf"), float("nan")])
def test_a_bound_that_cannot_be_is_refused(bound: float) -> None:
    with pytest.raises(ValueError, match="`bound` must be finite and > 0"):
        networks.ReturnScale(bound)


def make_head(projection: Any, scale: networks.ReturnScale | None) -> networks.CategoricalCriticHead:
    generator = torch.Generator().manual_seed(0)
    options: dict[str, Any] = {"vmin": -5.0, "vmax": 5.0, "num_bins": 21, "generator": generator}
    head = networks.CategoricalCriticHead(4, projection=projection, scale=scale, **options)
    with torch.no_grad():
        head.weight.normal_(generator=generator)  # values that depend on the state
    return head


@pytest.mark.parametrize("projection", ["c51", "two_hot", "hl_gauss"])
def test_a_scaled_head_is_the_plain_one_in_other_units(projection: Any) -> None:
    scale = make_scale(sums(50, 0, 30.0))
    factor = scale.value.item()
    plain, scaled = make_head(projection, None), make_head(projection, scale)
    generator = torch.Generator().manual_seed(3)
    features, target = torch.randn(6, 4, generator=generator), torch.randn(6, generator=generator)
    mask = torch.tensor([1.0, 1, 1, 1, 0, 1])
    expected, found = plain(features), scaled(features)
    assert expected.mean().std() > 0.1
    torch.testing.assert_close(found.mean(), factor * expected.mean(), rtol=1e-5, atol=1e-5)
    loss = scaled.loss(found, factor * target, mask)
    torch.testing.assert_close(loss, plain.loss(expected, target, mask), rtol=1e-5, atol=1e-5)
    returns = found.returns(generator=None, num_samples=1)
    distribution = networks.ReturnDistribution(0.5 * returns.values, returns.weights)
    halves = expected.returns(generator=None, num_samples=1)
    torch.testing.assert_close(
        scaled.loss(found, distribution, mask),
        plain.loss(expected, networks.ReturnDistribution(0.5 * halves.values, halves.weights), mask),
        rtol=1e-5,
        atol=1e-5,
    )
