"""What agents ask of a distribution, asked of every kind, against `torch.distributions`."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import tree

from minerva_acme import distributions

LOW, HIGH = torch.tensor([-1.0, 0.0, -3.0]), torch.tensor([1.0, 0.5, 5.0])
LEADING = (4, 5)


def normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def gaussian(seed: int) -> distributions.DiagonalGaussian:
    return distributions.DiagonalGaussian(
        normal(*LEADING, 3, seed=seed), 0.4 * normal(*LEADING, 3, seed=seed + 9)
    )


def squashed(seed: int) -> distributions.SquashedGaussian:
    return distributions.SquashedGaussian(gaussian(seed), distributions.TanhSquash(LOW, HIGH))


def categorical(seed: int) -> distributions.Categorical:
    return distributions.Categorical(normal(*LEADING, 3, seed=seed))


def masked(seed: int) -> distributions.Categorical:
    return categorical(seed).masked(torch.tensor([True, False, True]))


def choices(seed: int) -> distributions.MultiCategorical:
    return distributions.MultiCategorical(normal(*LEADING, 2, 3, seed=seed))


def hybrid(seed: int) -> distributions.Hybrid:
    return distributions.Hybrid(gaussian(seed), choices(seed + 5))


KINDS: dict[str, Callable[[int], Any]] = {
    "Gaussian": gaussian,
    "squashed Gaussian": squashed,
    "categorical": categorical,
    "masked categorical": masked,
    "several choices": choices,
    "hybrid": hybrid,
}


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def make(request: pytest.FixtureRequest) -> Callable[[int], Any]:
    """Makes a distribution of leading axes `LEADING` from a seed."""
    make: Callable[[int], Any] = request.param
    return make


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Joint(torch.distributions.Distribution):
    """Two independent distributions of one vector, whose first three numbers are the first one's."""

    def __init__(self, *parts: torch.distributions.Distribution) -> None:
        super().__init__(validate_args=False)
        self.parts = parts

    def sample(self, sample_shape: Any = ()) -> torch.Tensor:
        return torch.cat([part.sample(sample_shape) for part in self.parts], dim=-1)

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        first, second = self.parts
        return first.log_prob(value[..., :3]) + second.log_prob(value[..., 3:])


@torch.distributions.register_kl(Joint, Joint)
def joint_kl(one: Joint, other: Joint) -> torch.Tensor:
    kls = map(torch.distributions.kl_divergence, one.parts, other.parts)
    return torch.stack([*kls]).sum(dim=0)


def tensors_of(distribution: Any) -> list[torch.Tensor]:
    """The parameters, in the order of the parts that `decouple` returns."""
    return [leaf for leaf in tree.flatten(distribution) if isinstance(leaf, torch.Tensor)]


def reference(distribution: Any) -> torch.distributions.Distribution:
    if isinstance(distribution, distributions.Hybrid):
        return Joint(*map(reference, distribution))
    if isinstance(distribution, distributions.Categorical):
        return torch.distributions.Categorical(logits=distribution.logits)
    if isinstance(distribution, distributions.MultiCategorical):
        return torch.distributions.Independent(torch.distributions.Categorical(logits=distribution.logits), 1)
    raw = getattr(distribution, "raw", distribution)
    base = torch.distributions.Independent(torch.distributions.Normal(raw.mean, raw.log_std.exp()), 1)
    if raw is distribution:
        return base
    scale = 0.5 * (HIGH - LOW)
    transforms = [
        torch.distributions.TanhTransform(cache_size=1),
        torch.distributions.AffineTransform(LOW + scale, scale, event_dim=1),
    ]
    return torch.distributions.TransformedDistribution(base, transforms)


@pytest.mark.promise("Log-densities and KLs equal torch's")
def test_log_probabilities_are_those_of_torch_with_and_without_an_axis_in_front(make) -> None:
    distribution = make(0)
    for action in (distribution.sample(generator()), distribution.sample(generator(), 6)):
        log_prob = distribution.log_prob(action)
        torch.testing.assert_close(log_prob, reference(distribution).log_prob(action), rtol=1e-4, atol=1e-4)
        assert log_prob.shape == action.shape[: log_prob.ndim]
    assert log_prob.shape == (6, *LEADING)


def test_kls_are_those_of_torch_and_the_sum_of_their_dimensions(make) -> None:
    one, other = make(0), make(1)
    kl = one.kl(other)
    raw = [getattr(distribution, "raw", distribution) for distribution in (one, other)]
    expected = torch.distributions.kl_divergence(*map(reference, raw))
    torch.testing.assert_close(kl, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(one.kl_per_dimension(other).sum(dim=-1), kl)


def test_entropies_are_the_means_of_minus_the_log_probability(make) -> None:
    distribution = make(0)
    action = reference(distribution).sample((20_000,))
    estimate = -distribution.log_prob(action)
    error = estimate.std(dim=0) / math.sqrt(20_000)
    assert ((distribution.entropy() - estimate.mean(dim=0)).abs() < 5.0 * error + 1e-3).all()


def test_one_sample_has_no_axis_more_and_n_have_one(make) -> None:
    distribution = make(0)
    one, several = distribution.sample(generator()), distribution.sample(generator(), 7)
    assert several.shape == (7, *one.shape)
    assert one.shape[:2] == LEADING
    assert distribution.mode().shape == one.shape
    assert torch.equal(distribution.sample(generator(), 7), several)


def test_an_expectation_over_the_points_is_that_over_samples(make) -> None:
    distribution = make(0)
    points = distribution.points(generator(), 20_000)

    def value(action: torch.Tensor) -> torch.Tensor:
        return (action == 2).float() if action.ndim == 3 else action.float().square().sum(dim=-1)

    samples = value(distribution.sample(generator(1), 20_000))
    expected, error = samples.mean(dim=0), samples.std(dim=0) / math.sqrt(20_000)
    assert ((points.mean(value(points.actions)) - expected).abs() < 6.0 * error + 1e-6).all()


def test_indexing_takes_leading_axes_of_all_that_is_said(make) -> None:
    distribution = make(0)
    for index in (1, (slice(None), 0), (slice(None), slice(1, None))):
        part = distribution.at(index)
        action = distribution.mode()[index]
        torch.testing.assert_close(part.mode(), action)
        torch.testing.assert_close(part.log_prob(action), distribution.log_prob(distribution.mode())[index])


def test_a_detached_one_is_equal_and_has_no_gradient(make) -> None:
    distribution = make(0)
    for tensor in tensors_of(distribution):
        tensor.requires_grad_()
    action = distribution.mode().detach()
    assert distribution.log_prob(action).requires_grad
    frozen = distribution.detach()
    assert not frozen.log_prob(action).requires_grad
    assert torch.equal(frozen.log_prob(action), distribution.log_prob(action))


def test_parts_are_the_other_with_one_thing_of_the_own_and_train_that_alone(make) -> None:
    one, other = make(0), make(1)
    for distribution in (one, other):
        for tensor in tensors_of(distribution):
            tensor.requires_grad_()
    parts, before = one.decouple(other), other.detach().decouple(other.detach())
    assert parts._fields == ("mean", "stddev", "discrete")[: len(parts)]
    own, others = tensors_of(one), tensors_of(other)
    kls = [mine.kl_per_dimension(part) for mine, part in zip(before, parts, strict=True)]
    for index, kl in enumerate(kl.sum() for kl in kls):
        gradients = torch.autograd.grad(kl, own + others, allow_unused=True)
        trained = [gradient is not None and bool(gradient.any()) for gradient in gradients]
        assert trained == [i == index for i in range(len(own))] + [False] * len(others)
    whole = other.detach().kl(one)
    # By one thing after the other: the KL of a Gaussian by its stddev is as if the mean were known.
    if len(parts) > 1:
        stretch = (2.0 * (others[1] - own[1])).exp()
        kls[:2] = [kls[0] * stretch + kls[1]]
    torch.testing.assert_close(torch.cat(kls, dim=-1).sum(dim=-1), whole)


def test_parts_of_a_hybrid_are_those_of_its_entries() -> None:
    one, other = hybrid(0), hybrid(1)
    action = one.sample(generator(), 6)
    mean, stddev, choices_alone = one.decouple(other)
    for part, gaussian_part in zip((mean, stddev), one.continuous.decouple(other.continuous), strict=True):
        torch.testing.assert_close(part.log_prob(action), gaussian_part.log_prob(action[..., :3]))
    torch.testing.assert_close(choices_alone.log_prob(action), one.discrete.log_prob(action[..., 3:]))


def test_diagnostics_are_single_numbers_without_gradient(make) -> None:
    distribution = make(0)
    for tensor in tensors_of(distribution):
        tensor.requires_grad_()
    numbers = distribution.diagnostics()
    assert numbers
    assert all(number.shape == () and not number.requires_grad for number in numbers.values())


# The squashed Gaussian.


@pytest.mark.parametrize("stddev", [0.001, 0.3, 1.0, 3.0, 7.3])
@pytest.mark.parametrize("mean", [0.0, -2.0, 30.0])
def test_squashed_entropy_is_that_of_a_fine_integral(mean: float, stddev: float) -> None:
    squash = distributions.TanhSquash(torch.tensor([-2.0]), torch.tensor([3.0])).double()
    raw = distributions.DiagonalGaussian(
        torch.tensor([mean]).double(), torch.tensor([math.log(stddev)]).double()
    )
    # The integral of log-slope times density, by rectangles.
    z = torch.linspace(-12.0, 12.0, 200_001, dtype=torch.float64)
    density = (-0.5 * z.square()).exp() / math.sqrt(2.0 * math.pi)
    log_slope = squash.log_slope((mean + stddev * z)[:, None]).squeeze(-1)
    expected = raw.entropy() + (density * log_slope).sum() * (z[1] - z[0])
    entropy = distributions.SquashedGaussian(raw, squash).entropy()
    torch.testing.assert_close(entropy, expected, rtol=0.0, atol=0.03 if stddev > 3.0 else 1e-3)


def test_squashed_samples_come_with_a_density_that_is_exact_next_to_the_bounds() -> None:
    squash = distributions.TanhSquash(LOW, HIGH)
    raw = distributions.DiagonalGaussian(torch.full((50, 3), 9.0), torch.zeros(50, 3))
    distribution = distributions.SquashedGaussian(raw, squash)
    action, log_prob = distribution.sample_and_log_prob(generator())
    drawn = raw.sample(generator())
    torch.testing.assert_close(action, squash(drawn))
    double = distributions.SquashedGaussian(
        distributions.DiagonalGaussian(raw.mean.double(), raw.log_std.double()), squash
    )
    expected = double.raw.log_prob(drawn.double()) - squash.log_det(drawn.double())
    torch.testing.assert_close(log_prob.double(), expected, rtol=1e-5, atol=1e-4)
    assert torch.isfinite(distribution.log_prob(action)).all()
    assert ((action >= LOW) & (action <= HIGH)).all()


def test_gradients_of_a_squashed_sample_and_its_density_reach_the_raw_gaussian() -> None:
    mean, log_std = torch.zeros(3, requires_grad=True), torch.zeros(3, requires_grad=True)
    distribution = distributions.SquashedGaussian(
        distributions.DiagonalGaussian(mean, log_std), distributions.TanhSquash(LOW, HIGH)
    )
    action, log_prob = distribution.sample_and_log_prob(generator(), 5)
    for total in (action.sum(), log_prob.sum(), distribution.entropy()):
        gradients = torch.autograd.grad(total, [mean, log_std], retain_graph=True)
        assert all(torch.isfinite(gradient).all() for gradient in gradients)
        assert gradients[1].any()


# Masks.


def test_masked_actions_have_no_probability_no_gradient_and_are_never_drawn() -> None:
    logits = torch.tensor([[5.0, 1.0, 1.0 + math.log(3.0)]], requires_grad=True)
    distribution = distributions.Categorical(logits).masked(torch.tensor([[0.0, 1.0, 1.0]]))
    log_p = distribution.log_prob(torch.arange(3)[:, None])[:, 0]
    torch.testing.assert_close(log_p.exp(), torch.tensor([0.0, 0.25, 0.75]))
    assert torch.isfinite(log_p).all()
    entropy = 2.0 * math.log(2.0) - 0.75 * math.log(3.0)
    torch.testing.assert_close(distribution.entropy(), torch.tensor([entropy]))
    assert distribution.mode().item() == 2
    assert set(distribution.sample(generator(), 500).unique().tolist()) == {1, 2}
    total = (
        distribution.entropy() + log_p.sum() + distributions.Categorical(torch.zeros(1, 3)).kl(distribution)
    )
    (gradient,) = torch.autograd.grad(total.sum(), logits)
    assert torch.isfinite(gradient).all()
    assert gradient[0, 0] == 0.0
    assert gradient[0, 1] != 0.0


def test_a_mask_holds_whatever_the_logits_are() -> None:
    legal = torch.tensor([True, False, True])
    logits = torch.tensor([[0.0, 3e4, 0.0], [1e6, 0.0, -1e6], [-1e6, 1e6, -1e6]])
    masked = distributions.Categorical(logits).masked(legal)
    torch.testing.assert_close(masked.logits.softmax(dim=-1)[:, 1], torch.zeros(3))
    assert (masked.mode() == 0).all()


def test_where_no_action_is_legal_all_are() -> None:
    distribution = categorical(0)
    legal = torch.ones(*LEADING, 3)
    legal[1, 2] = 0.0
    legal[0, 0, 1] = 0.0
    masked = distribution.masked(legal)
    torch.testing.assert_close(masked.logits[1, 2], distribution.logits[1, 2])
    assert masked.log_prob(torch.ones(LEADING))[0, 0] < -5e3


def test_choices_are_drawn_independently_of_each_other() -> None:
    distribution = distributions.MultiCategorical(torch.zeros(40_000, 2, 2))
    first, second = distribution.sample(generator()).float().unbind(dim=-1)
    assert torch.corrcoef(torch.stack([first, second]))[0, 1].abs() < 0.02


def test_nothing_is_drawn_for_exact_points() -> None:
    state = generator(3)
    before = state.get_state()
    points = categorical(0).points(state, 5)
    assert torch.equal(state.get_state(), before)
    assert points.log_weights is not None
    assert points.actions.shape == points.log_weights.shape == (3, *LEADING)
    torch.testing.assert_close(points.log_weights.exp().sum(dim=0), torch.ones(LEADING))
