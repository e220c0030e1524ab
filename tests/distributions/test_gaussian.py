import itertools
import math

import pytest
import torch

from minerva_acme import distributions


def make_gaussian(*shape: int, seed: int = 0) -> distributions.DiagonalGaussian:
    generator = torch.Generator().manual_seed(seed)
    return distributions.DiagonalGaussian(
        torch.randn(*shape, generator=generator), 0.5 * torch.randn(*shape, generator=generator)
    )


def reference(gaussian: distributions.DiagonalGaussian) -> torch.distributions.Independent:
    normal = torch.distributions.Normal(gaussian.mean, gaussian.log_std.exp())
    return torch.distributions.Independent(normal, 1)


def test_log_prob_is_the_one_derived_by_hand() -> None:
    gaussian = distributions.DiagonalGaussian(torch.tensor([1.0, 0.0]), torch.tensor([math.log(2.0), 0.0]))
    expected = -0.5 * 1.0 - math.log(2.0) - math.log(2.0 * math.pi)
    torch.testing.assert_close(gaussian.log_prob(torch.tensor([3.0, 0.0])), torch.tensor(expected))


@pytest.mark.parametrize("shape", [(3,), (4, 3), (4, 5, 3)])
def test_log_prob_and_entropy_are_those_of_torch(shape: tuple[int, ...]) -> None:
    gaussian = make_gaussian(*shape)
    for x in (torch.randn(*shape), torch.randn(6, *shape)):
        torch.testing.assert_close(gaussian.log_prob(x), reference(gaussian).log_prob(x))
    torch.testing.assert_close(gaussian.entropy(), reference(gaussian).entropy())


def test_kl_is_that_of_torch() -> None:
    gaussian, other = make_gaussian(4, 3), make_gaussian(4, 3, seed=1)
    torch.testing.assert_close(
        gaussian.kl_per_dimension(other).sum(dim=-1),
        torch.distributions.kl_divergence(reference(gaussian), reference(other)),
    )


def test_kl_of_a_millionth_is_exact_in_single_precision() -> None:
    log_std = torch.tensor([0.3, -1.7])
    gaussian = distributions.DiagonalGaussian(torch.zeros(2), log_std)
    other = distributions.DiagonalGaussian(torch.zeros(2), log_std + 1e-3)
    d = (gaussian.log_std - other.log_std).double()
    exact = 0.5 * (torch.exp(2.0 * d) - 1.0 - 2.0 * d)
    torch.testing.assert_close(gaussian.kl_per_dimension(other).double(), exact, rtol=1e-3, atol=0.0)


def test_samples_have_the_mean_and_stddev() -> None:
    gaussian = make_gaussian(2, 3)
    samples = gaussian.sample(torch.Generator().manual_seed(0), 40_000)
    assert samples.shape == (40_000, 2, 3)
    torch.testing.assert_close(samples.mean(dim=0), gaussian.mean, rtol=0.0, atol=0.05)
    torch.testing.assert_close(samples.std(dim=0), gaussian.log_std.exp(), rtol=0.03, atol=0.0)


def test_seed_reproduces_samples_and_none_adds_no_axis() -> None:
    gaussian = make_gaussian(2, 3)
    one = gaussian.sample(torch.Generator().manual_seed(5))
    assert one.shape == (2, 3)
    torch.testing.assert_close(gaussian.sample(torch.Generator().manual_seed(5), 1)[0], one)


def test_gradient_of_a_sample_reaches_mean_and_log_std() -> None:
    mean, log_std = torch.zeros(3, requires_grad=True), torch.zeros(3, requires_grad=True)
    sample = distributions.DiagonalGaussian(mean, log_std).sample(torch.Generator().manual_seed(0))
    sample.sum().backward()
    torch.testing.assert_close(mean.grad, torch.ones(3))
    torch.testing.assert_close(log_std.grad, sample.detach())  # std * noise


def test_mode_is_the_mean() -> None:
    gaussian = make_gaussian(4, 3)
    assert gaussian.mode() is gaussian.mean


def test_clipped_samples_have_the_density_between_bounds_and_the_mass_at_them():
    generator = torch.Generator().manual_seed(0)
    mean, log_std = (torch.randn(5, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    low, high = torch.tensor([-1.0, -0.5, -2.0]).double(), torch.tensor([0.5, 1.0, 0.3]).double()
    action = 2.0 * torch.randn(4, 5, 3, generator=generator, dtype=torch.float64)
    action = action.minimum(high).maximum(low)
    policy = distributions.DiagonalGaussian(mean.requires_grad_(), log_std.requires_grad_())
    found = policy.log_prob_clipped(action, low, high)
    expected, kinds = torch.zeros(4, 5, dtype=torch.float64), set()
    for n, b, d in itertools.product(range(4), range(5), range(3)):
        normal = torch.distributions.Normal(mean[b, d].detach(), log_std[b, d].detach().exp())
        x = action[n, b, d]
        kinds.add("low" if x == low[d] else "high" if x == high[d] else "inside")
        if x == low[d]:
            expected[n, b] += math.log(0.5 * math.erfc((normal.mean - x) / normal.stddev / math.sqrt(2.0)))
        elif x == high[d]:
            expected[n, b] += math.log(0.5 * math.erfc((x - normal.mean) / normal.stddev / math.sqrt(2.0)))
        else:
            expected[n, b] += normal.log_prob(x)
    assert kinds == {"low", "high", "inside"}
    torch.testing.assert_close(found.detach(), expected)
    # Far from a bound too, where the mass beyond it is 0 in any precision.
    (gradient,) = torch.autograd.grad(
        distributions.DiagonalGaussian(mean - 1e3, log_std - 3.0).log_prob_clipped(action, low, high).sum(),
        mean,
    )
    assert torch.isfinite(gradient).all() and torch.isfinite(found).all()
