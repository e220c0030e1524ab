"""Explained variance, and the spread of values within a state."""

import pytest
import torch

from minerva_acme import losses


def test_explained_variance_is_that_derived_by_hand() -> None:
    # Errors (0, 1): variance 1/4. Targets (0, 2): variance 1.
    explained = losses.explained_variance(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 2.0]))
    torch.testing.assert_close(explained, torch.tensor(0.75))


def test_perfect_values_explain_all_constants_nothing_and_opposites_less() -> None:
    target = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(losses.explained_variance(target, target), torch.tensor(1.0))
    torch.testing.assert_close(losses.explained_variance(torch.full((8, 3), 7.0), target), torch.tensor(0.0))
    torch.testing.assert_close(losses.explained_variance(-target, target), torch.tensor(-3.0))


@pytest.mark.parametrize("constant", [0.0, 0.1, 1234.567])
@pytest.mark.parametrize("count", [1, 7, 1000])
def test_targets_that_are_all_equal_leave_nothing_to_explain(constant: float, count: int) -> None:
    value = torch.randn(count, generator=torch.Generator().manual_seed(0))
    assert losses.explained_variance(value, torch.full((count,), constant)).item() == 0.0


def test_no_gradient_flows() -> None:
    value = torch.tensor([0.0, 1.0], requires_grad=True)
    assert not losses.explained_variance(value, torch.tensor([0.0, 2.0])).requires_grad


def test_shapes_that_differ_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"`value` and `target` must have the same shape .* got \[2\] and \[2, 1\]"
    ):
        losses.explained_variance(torch.zeros(2), torch.zeros(2, 1))
    with pytest.raises(ValueError, match="not be empty"):
        losses.explained_variance(torch.zeros(0), torch.zeros(0))


def test_spread_is_measured_within_states_and_against_their_values() -> None:
    offsets = torch.tensor([[90.0], [110.0]])
    q = offsets + torch.tensor([[-1.0, 1.0], [-1.0, 1.0]])
    torch.testing.assert_close(losses.spread_within_states(q), torch.tensor(0.01))
    assert losses.spread_within_states(torch.zeros(2, 3)).item() == 0.0
