import math

import pytest
import torch

from minerva_acme import distributions


def make_categorical(*shape: int, seed: int = 0) -> distributions.Categorical:
    return distributions.Categorical(2.0 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed)))


def test_numbers_are_those_derived_by_hand() -> None:
    categorical = distributions.Categorical(torch.tensor([0.0, math.log(3.0)]) + 5.0)  # P = 1/4, 3/4
    for action, probability in ((0, 0.25), (1, 0.75)):
        log_prob = categorical.log_prob(torch.tensor(action))
        torch.testing.assert_close(log_prob, torch.tensor(math.log(probability)))
    entropy = 2.0 * math.log(2.0) - 0.75 * math.log(3.0)
    torch.testing.assert_close(categorical.entropy(), torch.tensor(entropy))
    uniform = distributions.Categorical(torch.tensor([7.0, 7.0]))
    torch.testing.assert_close(categorical.kl(uniform), torch.tensor(math.log(2.0) - entropy))
    assert categorical.mode().item() == 1


@pytest.mark.parametrize("shape", [(3,), (4, 3), (4, 5, 3), (4, 1)])
def test_values_are_those_of_torch_with_any_leading_axes(shape: tuple[int, ...]) -> None:
    categorical, other = make_categorical(*shape), make_categorical(*shape, seed=1)
    expected, expected_other = (
        torch.distributions.Categorical(logits=c.logits) for c in (categorical, other)
    )
    action = categorical.sample(torch.Generator().manual_seed(0))
    assert action.shape == categorical.mode().shape == shape[:-1]
    assert action.dtype == categorical.mode().dtype == torch.int64
    torch.testing.assert_close(categorical.log_prob(action), expected.log_prob(action))
    torch.testing.assert_close(categorical.entropy(), expected.entropy())
    kl = torch.distributions.kl_divergence(expected, expected_other)
    torch.testing.assert_close(categorical.kl(other), kl)
    torch.testing.assert_close(categorical.mode(), expected.probs.argmax(dim=-1))


@pytest.mark.parametrize("rows", [1, 64])
def test_actions_are_sampled_as_often_as_they_are_likely(rows: int) -> None:
    p = torch.tensor([0.001, 0.1, 0.2, 0.3, 0.399])
    categorical = distributions.Categorical((p.log() - 100.0).expand(rows, 5))
    generator = torch.Generator().manual_seed(0)
    num_calls = 20_000 // rows
    actions = torch.cat([categorical.sample(generator) for _ in range(num_calls)])
    share = actions.bincount(minlength=5) / actions.numel()
    deviation = (p * (1.0 - p) / actions.numel()).sqrt()
    assert ((share - p).abs() < 4.0 * deviation).all()


def test_rows_are_sampled_independently() -> None:
    action = (
        distributions.Categorical(torch.zeros(40_000, 2)).sample(torch.Generator().manual_seed(0)).float()
    )
    correlation = torch.corrcoef(torch.stack([action[:-1], action[1:]]))[0, 1]
    assert correlation.abs().item() < 0.02


def test_seed_reproduces_samples_without_the_global_generator() -> None:
    categorical, state = make_categorical(50, 4), torch.get_rng_state()
    first, second, other = (categorical.sample(torch.Generator().manual_seed(seed)) for seed in (5, 5, 6))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("offset", [0.0, -1e4, 1e4])
def test_logits_ten_thousand_apart_give_finite_values_and_gradients(offset: float) -> None:
    logits = (torch.tensor([[0.0, -1e4, 0.0], [1e4, 0.0, -1e4]]) + offset).requires_grad_()
    categorical = distributions.Categorical(logits)
    torch.testing.assert_close(categorical.entropy(), torch.tensor([math.log(2.0), 0.0]))
    torch.testing.assert_close(categorical.kl(categorical), torch.zeros(2))
    log_prob = categorical.log_prob(torch.tensor([1, 1]))
    torch.testing.assert_close(log_prob, torch.tensor([-1e4 - math.log(2.0), -1e4]))
    total = categorical.entropy() + log_prob + categorical.kl(distributions.Categorical(logits.flip(-1)))
    (gradient,) = torch.autograd.grad(total.sum(), logits)
    assert torch.isfinite(gradient).all()
    generator = torch.Generator().manual_seed(0)
    samples = torch.stack([categorical.sample(generator) for _ in range(1000)])
    assert set(samples[:, 0].tolist()) == {0, 2}
    assert set(samples[:, 1].tolist()) == {0}


def test_gradient_of_log_prob_is_one_hot_less_probabilities() -> None:
    logits = make_categorical(4, 3).logits.requires_grad_()
    action = torch.tensor([0, 2, 1, 1])
    (gradient,) = torch.autograd.grad(distributions.Categorical(logits).log_prob(action).sum(), logits)
    expected = torch.nn.functional.one_hot(action, 3) - logits.detach().softmax(dim=-1)
    torch.testing.assert_close(gradient, expected)


def test_gradient_of_kl_is_zero_where_both_are_equal() -> None:
    logits, other = (make_categorical(4, 3).logits.requires_grad_() for _ in range(2))
    kl = distributions.Categorical(logits).kl(distributions.Categorical(other))
    for gradient in torch.autograd.grad(kl.sum(), [logits, other]):
        torch.testing.assert_close(gradient, torch.zeros(4, 3), rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_any_integer_type_names_an_action(dtype: torch.dtype) -> None:
    categorical = make_categorical(4, 3)
    action = torch.tensor([0, 2, 1, 1])
    torch.testing.assert_close(categorical.log_prob(action.to(dtype)), categorical.log_prob(action))
