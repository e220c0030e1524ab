from typing import Any

import pytest
import torch

from minerva_acme import networks


def make_policy(seed: int = 0, **kwargs: Any) -> networks.GaussianPolicy:
    return networks.GaussianPolicy(5, 2, (64, 256), generator=torch.Generator().manual_seed(seed), **kwargs)


@pytest.mark.parametrize("leading", [(1,), (7,), (3, 4), ()])
def test_leading_axes_pass_through(leading: tuple[int, ...]) -> None:
    gaussian = make_policy()(torch.randn(*leading, 5))
    assert gaussian.mean.shape == gaussian.log_std.shape == (*leading, 2)


def test_log_std_is_clamped() -> None:
    policy = make_policy()
    for bias, expected in ((100.0, 2.0), (-100.0, -7.0)):
        torch.nn.init.constant_(policy.log_std_head.bias, bias)
        torch.testing.assert_close(policy(torch.randn(3, 5)).log_std, torch.full((3, 2), expected))


def test_untrained_policy_has_its_stddev_in_every_state() -> None:
    stddev = make_policy(initial_stddev=0.5)(10.0 * torch.randn(100, 5)).log_std.exp()
    torch.testing.assert_close(stddev, torch.full((100, 2), 0.5), rtol=0.05, atol=0.0)


@pytest.mark.parametrize("torso", [networks.LayerNormMLP, networks.SimBa, networks.ReLUMLP])
def test_untrained_mean_is_near_zero_in_every_state(torso: networks.TorsoFactory) -> None:
    generator = torch.Generator().manual_seed(0)
    policy = networks.GaussianPolicy(5, 32, (256,), generator=generator, torso=torso)
    mean = policy(torch.randn(100, 5, generator=generator)).mean
    assert 0.0 < mean.abs().max() < 0.1
    assert policy.mean_head.bias.abs().max().item() == 0.0


LOW, HIGH = torch.tensor([-1.0, 2.0]), torch.tensor([1.0, 6.0])


def test_a_mean_with_bounds_stays_between_them_and_starts_in_their_middle() -> None:
    policy = make_policy(bounds=(LOW, HIGH))
    observation = torch.randn(100, 5)
    middle = ((LOW + HIGH) / 2).expand(100, 2)
    torch.testing.assert_close(policy(observation).mean, middle, rtol=0.0, atol=0.1)
    for bias, end in ((30.0, HIGH), (-30.0, LOW)):
        torch.nn.init.constant_(policy.mean_head.bias, bias)
        torch.testing.assert_close(policy(observation).mean, end.expand(100, 2))


def test_bounds_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`bounds` must be of 2 action dimensions, got 1\."):
        make_policy(bounds=(torch.zeros(1), torch.ones(1)))
    with pytest.raises(ValueError, match="`low` and `high` must be finite vectors"):
        make_policy(bounds=(HIGH, LOW))


def test_seed_reproduces_the_network_without_the_global_generator() -> None:
    state = torch.get_rng_state()
    torch.testing.assert_close(make_policy(3).state_dict(), make_policy(3).state_dict())
    assert not torch.equal(make_policy(3).mean_head.weight, make_policy(4).mean_head.weight)
    torch.testing.assert_close(torch.get_rng_state(), state)


def test_every_parameter_gets_a_gradient() -> None:
    policy = make_policy()
    policy(torch.randn(8, 5)).log_prob(torch.randn(8, 2)).sum().backward()
    for name, parameter in policy.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max().item() > 0.0, name


@pytest.mark.parametrize("stddev", [0.0, -1.0, 1e-4, 8.0])
def test_stddev_that_would_be_clamped_is_refused(stddev: float) -> None:
    message = (
        rf"`initial_stddev` must be in \[0.000912, 7.39\], the range to which policies clamp it, got {stddev}"
    )
    with pytest.raises(ValueError, match=message):
        make_policy(initial_stddev=stddev)


@pytest.mark.parametrize("leading", [(7,), (3, 4), ()])
def test_a_categorical_policy_starts_near_uniform_in_every_state(leading: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    policy = networks.CategoricalPolicy(5, 3, (64, 256), generator=generator)
    logits = policy(10.0 * torch.randn(*leading, 5, generator=generator)).logits
    assert logits.shape == (*leading, 3)
    assert 0.0 < (logits.softmax(dim=-1) - 1.0 / 3.0).abs().max() < 0.05
