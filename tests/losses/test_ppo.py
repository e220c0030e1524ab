"""PPO's losses: values and gradients derived by hand, gradients that must be zero, a small problem."""

import itertools
import math
from typing import Any

import pytest
import torch

from minerva_acme import distributions, losses

# Of every test that does not say otherwise.
SETTINGS = {"clip_ratio": 0.2, "clip_value": True, "entropy_coef": 0.01, "value_coef": 0.5}
TRAINED = ("log_prob", "value", "entropy")


def random_inputs(n: int = 16, seed: int = 0) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    names = (*TRAINED, "behaviour_log_prob", "behaviour_value", "advantages", "targets")
    inputs: dict[str, Any] = {name: torch.randn(n, generator=generator) for name in names}
    return inputs | SETTINGS


def with_ratios(*ratios: float) -> dict[str, Any]:
    """One sample per ratio, whose advantage is 1 and whose value is on its target."""
    n = len(ratios)
    return SETTINGS | {
        "log_prob": torch.tensor(ratios).log().requires_grad_(),
        "behaviour_log_prob": torch.zeros(n),
        "advantages": torch.ones(n),
        "targets": torch.zeros(n),
        "value": torch.zeros(n),
        "behaviour_value": torch.zeros(n),
        "entropy": torch.zeros(n),
    }


# The policy.


def test_policy_loss_is_that_derived_by_hand() -> None:
    # Ratios 1.5 and 0.5 at advantages 1 and -1. The larger is worth 1.2 of 1.5 to A = 1 and all of -1.5
    # to A = -1; the smaller 0.5 to A = 1 and -0.8 to A = -1: -(1.2 - 1.5 + 0.5 - 0.8) / 4 = 0.15.
    inputs = with_ratios(1.5, 1.5, 0.5, 0.5) | {"advantages": torch.tensor([1.0, -1.0, 1.0, -1.0])}
    loss = losses.ppo_loss(**inputs)
    torch.testing.assert_close(loss.policy, torch.tensor(0.15))
    torch.testing.assert_close(loss.clip_fraction, torch.tensor(1.0))
    kl = 0.5 * (1.5 - 1.0 - math.log(1.5)) + 0.5 * (0.5 - 1.0 - math.log(0.5))
    torch.testing.assert_close(loss.approx_kl, torch.tensor(kl))


def test_only_a_ratio_that_went_too_far_the_way_it_should_go_stops_learning() -> None:
    inputs = with_ratios(1.5, 1.5, 0.5, 0.5, 1.1) | {"advantages": torch.tensor([2.0, -2.0, 2.0, -2.0, 2.0])}
    losses.ppo_loss(**inputs).total.backward()
    # d/d log_prob of -ratio A / n.
    expected = torch.tensor([0.0, 1.5 * 2.0, -0.5 * 2.0, 0.0, -1.1 * 2.0]) / 5
    torch.testing.assert_close(inputs["log_prob"].grad, expected)


def test_first_ratio_is_one_and_the_loss_minus_the_mean_advantage() -> None:
    inputs = random_inputs()
    inputs["behaviour_log_prob"] = inputs["log_prob"].clone()
    inputs["log_prob"].requires_grad_()
    loss = losses.ppo_loss(**inputs)
    torch.testing.assert_close(loss.policy, -inputs["advantages"].mean())
    assert loss.approx_kl.item() == 0.0
    assert loss.clip_fraction.item() == 0.0
    # There the surrogate is the policy gradient.
    loss.total.backward()
    torch.testing.assert_close(inputs["log_prob"].grad, -inputs["advantages"] / 16)


def test_a_small_kl_is_not_drowned_by_rounding() -> None:
    # (e^x - 1 - x) of x = 1e-4 is x^2 / 2 = 5e-9, less than the rounding of 1 in float32.
    inputs = with_ratios(1.0, 1.0) | {"log_prob": torch.tensor([1e-4, -1e-4])}
    assert losses.ppo_loss(**inputs).approx_kl.item() == pytest.approx(5e-9, rel=0.05)


def test_clip_fraction_counts_ratios_on_both_sides() -> None:
    loss = losses.ppo_loss(**with_ratios(1.0, 1.1, 1.3, 0.7, 0.9))
    torch.testing.assert_close(loss.clip_fraction, torch.tensor(0.4))


# The value and the entropy.


def test_value_loss_is_that_derived_by_hand() -> None:
    # From 0 to 1 towards 2: the clipped 0.2 is farther off, 1.8^2. From 0 to 1 with target 0: 1^2 is more
    # than the clipped 0.2^2. From 0 to 0.1 with target 1, within the range: 0.9^2.
    inputs = with_ratios(1.0, 1.0, 1.0) | {
        "value": torch.tensor([1.0, 1.0, 0.1], requires_grad=True),
        "targets": torch.tensor([2.0, 0.0, 1.0]),
    }
    loss = losses.ppo_loss(**inputs)
    torch.testing.assert_close(loss.value, torch.tensor(0.5 * (3.24 + 1.0 + 0.81) / 3))
    loss.total.backward()
    # The first has gone far enough; weight 0.5, mean over 3.
    torch.testing.assert_close(inputs["value"].grad, 0.5 * torch.tensor([0.0, 1.0, -0.9]) / 3)


def test_without_clipping_the_value_loss_is_half_the_mean_square() -> None:
    inputs = random_inputs() | {"clip_value": False}
    expected = 0.5 * torch.nn.functional.mse_loss(inputs["value"], inputs["targets"])
    torch.testing.assert_close(losses.ppo_loss(**inputs).value, expected)
    shifted = inputs | {"behaviour_value": inputs["behaviour_value"] + 7.0}
    torch.testing.assert_close(losses.ppo_loss(**shifted).value, expected)


def test_total_is_the_weighted_sum_and_entropy_is_raised() -> None:
    inputs = random_inputs() | {"entropy_coef": 0.3, "value_coef": 0.7}
    inputs["entropy"].requires_grad_()
    loss = losses.ppo_loss(**inputs)
    torch.testing.assert_close(loss.total, loss.policy + 0.7 * loss.value - 0.3 * loss.entropy)
    torch.testing.assert_close(loss.entropy, inputs["entropy"].mean())
    loss.total.backward()
    torch.testing.assert_close(inputs["entropy"].grad, torch.full((16,), -0.3 / 16))


def test_gradients_flow_to_what_is_trained_alone() -> None:
    inputs = random_inputs()
    tensors = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    for tensor in tensors.values():
        tensor.requires_grad_()
    loss = losses.ppo_loss(**inputs)
    assert not loss.approx_kl.requires_grad
    assert not loss.clip_fraction.requires_grad
    loss.total.backward()
    assert {name for name, tensor in tensors.items() if tensor.grad is not None} == set(TRAINED)


# Advantages.


def test_advantages_are_normalized_by_the_deviation_that_is_asked_for() -> None:
    advantages = torch.tensor([1.0, 2.0, 3.0])
    torch.testing.assert_close(
        losses.normalize_advantages(advantages, unbiased=True), torch.tensor([-1.0, 0.0, 1.0])
    )
    torch.testing.assert_close(
        losses.normalize_advantages(advantages, unbiased=False), torch.tensor([-1.0, 0.0, 1.0]) * 1.5**0.5
    )


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("constant", [0.0, 0.1, 1234.567])
def test_advantages_that_are_all_equal_become_zero(constant: float, unbiased: bool) -> None:
    normalized = losses.normalize_advantages(torch.full((7, 9), constant), unbiased)
    assert torch.equal(normalized, torch.zeros(7, 9))


@pytest.mark.parametrize(("count", "unbiased"), [(1, True), (0, True), (0, False)])
def test_too_few_advantages_are_refused(count: int, unbiased: bool) -> None:
    with pytest.raises(
        ValueError, match=r"`advantages` must hold at least [12] elements to be normalized, got shape"
    ):
        losses.normalize_advantages(torch.ones(count), unbiased)


def test_one_advantage_has_a_population() -> None:
    assert losses.normalize_advantages(torch.ones(1), unbiased=False).tolist() == [0.0]


# Form.


def test_order_of_the_samples_does_not_matter() -> None:
    inputs = random_inputs()
    order = torch.randperm(16, generator=torch.Generator().manual_seed(1))
    shuffled = {k: v[order] if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}
    for actual, expected in zip(losses.ppo_loss(**shuffled), losses.ppo_loss(**inputs), strict=True):
        torch.testing.assert_close(actual, expected)


def test_no_number_is_fetched_from_the_device() -> None:
    inputs = {k: v.to("meta") if isinstance(v, torch.Tensor) else v for k, v in random_inputs().items()}
    inputs["advantages"] = losses.normalize_advantages(inputs["advantages"], unbiased=True)
    assert losses.ppo_loss(**inputs).total.shape == ()


def test_a_wrong_shape_is_named() -> None:
    inputs = random_inputs() | {"value": torch.zeros(16, 1)}
    with pytest.raises(ValueError, match=r"`value` must have shape \[n = 16\], got \[16, 1\]"):
        losses.ppo_loss(**inputs)


def test_a_bandit_is_solved() -> None:
    # Two actions that pay 0 and 1, on-policy batches, three epochs each as PPO does.
    generator = torch.Generator().manual_seed(0)
    logits = torch.zeros(2, requires_grad=True)
    value = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.Adam([logits, value], lr=0.05)
    for _ in range(60):
        behaviour = distributions.Categorical(logits.detach().expand(64, 2).clone())
        action = behaviour.sample(generator)
        reward = action.float()
        behaviour_value = value.detach().expand(64)
        for _ in range(3):
            policy = distributions.Categorical(logits.expand(64, 2))
            loss = losses.ppo_loss(
                log_prob=policy.log_prob(action),
                behaviour_log_prob=behaviour.log_prob(action),
                advantages=losses.normalize_advantages(reward - behaviour_value, unbiased=True),
                targets=reward,
                value=value.expand(64),
                behaviour_value=behaviour_value,
                entropy=policy.entropy(),
                **SETTINGS,
            )
            optimizer.zero_grad()
            loss.total.backward()
            optimizer.step()
    assert logits.softmax(dim=0)[1].item() > 0.95
    assert value.item() == pytest.approx(1.0, abs=0.1)


# What float32 does not hold.


def plain_sample(
    *,
    log_prob: float,
    behaviour_log_prob: float,
    advantages: float,
    targets: float,
    value: float,
    behaviour_value: float,
    clip_ratio: float,
    clip_value: bool,
    value_coef: float,
    **unused: Any,
) -> tuple[float, float, float, float]:
    """Policy loss and value loss of one sample, and their derivatives by log_prob and value, in double."""
    log_ratio = log_prob - behaviour_log_prob
    ratio = math.exp(log_ratio)
    clipped = min(max(ratio, 1.0 - clip_ratio), 1.0 + clip_ratio)
    learns = ratio * advantages <= clipped * advantages
    policy = -(ratio if learns else clipped) * advantages
    d_log_prob = -ratio * advantages if learns else 0.0

    error, clipped_error = value - targets, 0.0
    change = value - behaviour_value
    if clip_value and abs(change) > clip_ratio:
        clipped_error = behaviour_value + math.copysign(clip_ratio, change) - targets
    farther = abs(clipped_error) > abs(error)
    return (
        policy,
        0.5 * (clipped_error if farther else error) ** 2,
        d_log_prob,
        0.0 if farther else value_coef * error,
    )


def compare_with_plain(inputs: dict[str, Any]) -> None:
    """Holds `ppo_loss`, a sample at a time and all together, against `plain_sample`."""
    n = len(inputs["log_prob"])
    samples = [
        {name: part[i : i + 1] if isinstance(part, torch.Tensor) else part for name, part in inputs.items()}
        for i in range(n)
    ]
    # Rounded to float32 a number that is too large for it is infinite: that is what must be found.
    expected = torch.tensor(
        [
            plain_sample(**{k: v.item() if isinstance(v, torch.Tensor) else v for k, v in sample.items()})
            for sample in samples
        ],
        dtype=torch.float64,
    )
    tolerance = {"rtol": 1e-4, "atol": 1e-37}  # exp(100) of a rounded difference; less is denormal
    for number, sample in zip(expected.float(), samples, strict=True):
        tensors = sample | {name: sample[name].clone().requires_grad_() for name in TRAINED}
        loss = losses.ppo_loss(**tensors)
        loss.total.backward()
        found = [loss.policy.detach(), loss.value.detach(), tensors["log_prob"].grad, tensors["value"].grad]
        torch.testing.assert_close(
            torch.stack([part.squeeze() for part in found]),
            number,
            **tolerance,
            msg=lambda m, s=sample: f"{s}: {m}",
        )

    tensors = inputs | {name: inputs[name].clone().requires_grad_() for name in TRAINED}
    losses.ppo_loss(**tensors).total.backward()
    for column, name in ((2, "log_prob"), (3, "value")):
        torch.testing.assert_close(tensors[name].grad, (expected[:, column] / n).float(), **tolerance)


@pytest.mark.parametrize("clip_ratio", [0.2, 0.5])
def test_the_surrogate_of_any_ratio_and_advantage_is_that_of_double_precision(clip_ratio: float) -> None:
    log_ratios = (-100.0, -80.0, -20.0, -0.3, -0.1, 0.0, 0.1, 0.3, 20.0, 80.0, 88.0, 95.0, 100.0)
    sizes = (0.0, 1e-30, 1.0, 1e30)
    grid = [
        (log_ratio, sign * size)
        for log_ratio, size, sign in itertools.product(log_ratios, sizes, (1.0, -1.0))
        # The ratio itself is rounded: to infinity, whatever it is multiplied with, or to a few digits.
        if not (log_ratio > 88.5 and size == 1e-30) and not (log_ratio < -85.0 and size == 1e30)
    ]
    log_ratio, advantages = torch.tensor(grid).unbind(dim=1)
    compare_with_plain(
        SETTINGS
        | {name: torch.zeros(len(grid)) for name in (*TRAINED, "targets", "behaviour_value")}
        | {"behaviour_log_prob": -log_ratio, "advantages": advantages, "clip_ratio": clip_ratio}
    )


@pytest.mark.parametrize("clip_value", [True, False])
def test_the_value_loss_of_any_values_is_that_of_double_precision(clip_value: bool) -> None:
    numbers = (0.0, 1e-30, 0.15, -0.15, -1.0, 3.0, 1e30)
    value, behaviour_value, targets = torch.cartesian_prod(*[torch.tensor(numbers)] * 3).unbind(dim=1)
    names = ("log_prob", "entropy", "behaviour_log_prob", "advantages")
    compare_with_plain(
        SETTINGS
        | {name: torch.zeros(len(value)) for name in names}
        | {"value": value, "behaviour_value": behaviour_value, "targets": targets, "clip_value": clip_value}
    )


def test_a_ratio_beyond_float32_teaches_nothing_where_it_is_clipped() -> None:
    inputs = with_ratios(1.0, 1.0, 1.0) | {
        "log_prob": torch.tensor([100.0, 100.0, 0.0], requires_grad=True),
        "advantages": torch.tensor([1.0, 0.0, 1.0]),
    }
    losses.ppo_loss(**inputs).total.backward()
    torch.testing.assert_close(inputs["log_prob"].grad, torch.tensor([0.0, 0.0, -1.0 / 3.0]))
    # An action that was bad and is now exp(100) times as likely: the learner leaves the batch out.
    inputs["advantages"] = torch.tensor([-1.0, 0.0, 1.0])
    inputs["log_prob"].grad = None
    losses.ppo_loss(**inputs).total.backward()
    assert inputs["log_prob"].grad.tolist() == [math.inf, 0.0, pytest.approx(-1.0 / 3.0)]


@pytest.mark.parametrize("clip_value", [True, False])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("name", ["log_prob", "behaviour_log_prob", "advantages", "value", "targets"])
def test_what_is_not_a_number_is_never_clipped_away(name: str, advantage: float, clip_value: bool) -> None:
    inputs = random_inputs() | {"advantages": torch.full((16,), advantage), "clip_value": clip_value}
    inputs[name][0] = math.nan
    trained = "value" if name in ("value", "targets") else "log_prob"
    inputs[trained].requires_grad_()
    losses.ppo_loss(**inputs).total.backward()
    assert inputs[trained].grad.isnan().nonzero().tolist() == [[0]]


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e15, 1e30, 1e37])
def test_advantages_of_any_size_are_normalized_alike(size: float) -> None:
    unit = 3.0 + torch.randn(37, generator=torch.Generator().manual_seed(0))
    advantages = size * unit
    exact = advantages.double()
    expected = ((exact - exact.mean()) / (exact.std() + 1e-8)).float()
    torch.testing.assert_close(losses.normalize_advantages(advantages, unbiased=True), expected)
