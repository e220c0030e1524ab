import math

import numpy as np
import pytest
import torch

from minerva_acme import distributions

LOW, HIGH = torch.tensor([-1.0, 0.0, -3.0]), torch.tensor([1.0, 0.5, 5.0])


def make_raw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, 3, generator=torch.Generator().manual_seed(seed))


def reference(base: torch.distributions.Distribution) -> torch.distributions.TransformedDistribution:
    scale = 0.5 * (HIGH - LOW)
    transforms = [
        torch.distributions.TanhTransform(cache_size=1),
        torch.distributions.AffineTransform(LOW + scale, scale, event_dim=1),
    ]
    return torch.distributions.TransformedDistribution(base, transforms)


def test_numbers_are_those_derived_by_hand() -> None:
    squash = distributions.TanhSquash(torch.tensor([-1.0, 0.0]), torch.tensor([2.0, 1.0]))
    raw = torch.tensor([math.log(3.0) / 2.0, 0.0])  # tanh is 1/2 and 0
    torch.testing.assert_close(squash(raw), torch.tensor([1.25, 0.5]))
    # Slopes: 3/2 (1 - 1/4) and 1/2.
    torch.testing.assert_close(squash.log_det(raw), torch.tensor(math.log(1.125) + math.log(0.5)))
    torch.testing.assert_close(squash.inverse(torch.tensor([1.25, 0.5])), raw)


@pytest.mark.parametrize("leading", [(), (7,), (3, 4)])
def test_density_is_that_of_torch_with_any_leading_axes(leading: tuple[int, ...]) -> None:
    squash, raw = distributions.TanhSquash(LOW, HIGH), make_raw(*leading)
    gaussian = distributions.DiagonalGaussian(make_raw(*leading, seed=1), 0.3 * make_raw(*leading, seed=2))
    base = torch.distributions.Independent(
        torch.distributions.Normal(gaussian.mean, gaussian.log_std.exp()), 1
    )
    action = squash(raw)
    assert action.shape == raw.shape
    assert squash.log_det(raw).shape == leading
    expected = reference(base).log_prob(action)
    torch.testing.assert_close(gaussian.log_prob(raw) - squash.log_det(raw), expected, rtol=1e-4, atol=1e-4)


def test_log_det_is_the_logarithm_of_the_derivative() -> None:
    squash, raw = distributions.TanhSquash(LOW, HIGH).double(), make_raw(20).double().requires_grad_()
    (slope,) = torch.autograd.grad(squash(raw).sum(), raw)
    torch.testing.assert_close(squash.log_det(raw), slope.log().sum(dim=-1))


def test_inverse_undoes_forward() -> None:
    squash, raw = distributions.TanhSquash(LOW, HIGH), make_raw(200).clamp(-3.0, 3.0)
    torch.testing.assert_close(squash.inverse(squash(raw)), raw, rtol=1e-4, atol=1e-4)


def test_bounds_and_what_lies_beyond_have_a_finite_inverse() -> None:
    squash = distributions.TanhSquash(LOW, HIGH)
    for action, sign in ((LOW, -1.0), (LOW - 1.0, -1.0), (HIGH, 1.0), (HIGH + 1.0, 1.0)):
        raw = squash.inverse(action)
        torch.testing.assert_close(raw, torch.full((3,), sign * 7.254), rtol=0.01, atol=0.0)


def test_action_never_leaves_its_bounds_by_rounding() -> None:
    generator = torch.Generator().manual_seed(0)
    low = -10.0 * torch.rand(1000, generator=generator)
    high = 10.0 * torch.rand(1000, generator=generator)
    assert (low + (high - low) > high).any()
    squash = distributions.TanhSquash(low, high)
    for raw in (-1e4, -9.0, 9.0, 1e4):
        action = squash(torch.full((1000,), raw))
        assert ((low <= action) & (action <= high)).all()


def test_log_det_and_its_gradient_are_exact_where_tanh_is_one_in_single_precision() -> None:
    squash = distributions.TanhSquash(-torch.ones(1), torch.ones(1))
    raw = torch.tensor([[-50.0], [20.0], [1000.0]], requires_grad=True)
    log_det = squash.log_det(raw)
    # 1 - tanh(x)^2 tends to 4 exp(-2 |x|).
    torch.testing.assert_close(log_det, 2.0 * math.log(2.0) - 2.0 * raw.detach().abs().squeeze(-1))
    (gradient,) = torch.autograd.grad(log_det.sum(), raw)
    torch.testing.assert_close(gradient, torch.tensor([[2.0], [-2.0], [-2.0]]))


@pytest.mark.golden("vmpo_loss.npz")
def test_log_prob_is_the_golden_one_but_for_its_guard(case: dict[str, torch.Tensor]) -> None:
    # The golden Jacobian is log(1 - tanh^2 + 1e-6): its guard against log(0), which ours needs not,
    # is taken away here. Near the bounds it is worth up to 0.2 nats.
    squash = distributions.TanhSquash(case["action_low"], case["action_high"])
    raw = squash.inverse(case["action"])
    log_prob = distributions.DiagonalGaussian(case["online_mean"], case["online_log_std"]).log_prob(raw)
    guard = torch.log1p(1e-6 / (1.0 - torch.tanh(raw.double()).square())).sum(dim=-1).float()
    torch.testing.assert_close(log_prob - squash.log_det(raw) - guard, case["log_prob"], rtol=1e-4, atol=1e-5)


def test_bounds_are_copies_that_travel_with_the_module() -> None:
    bound = np.array([1.0, 2.0], dtype=np.float64)
    squash = distributions.TanhSquash(torch.from_numpy(-bound), torch.from_numpy(bound))
    bound[:] = 0.0
    assert squash.state_dict()["high"].tolist() == [1.0, 2.0]
    assert squash.low.dtype == torch.float32
    assert squash.to("meta").high.device.type == "meta"


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ([1.0], [1.0]),
        ([-1.0, -1.0], [1.0]),
        ([[-1.0]], [[1.0]]),
        ([-math.inf], [1.0]),
        ([math.nan], [1.0]),
    ],
)
def test_bounds_that_make_no_finite_box_are_refused(low: list[float], high: list[float]) -> None:
    message = "`low` and `high` must be finite vectors of one size, low < high, got .* Bound the action"
    with pytest.raises(ValueError, match=message):
        distributions.TanhSquash(torch.tensor(low), torch.tensor(high))
