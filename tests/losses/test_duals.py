import math

import pytest
import torch

from minerva_acme import losses


def make_duals(num_dimensions: int = 3, action_penalty: bool = False) -> losses.MPODuals:
    return losses.MPODuals(
        num_dimensions=num_dimensions,
        init_log_temperature=10.0,
        init_log_alpha_mean=1.0,
        init_log_alpha_stddev=1000.0,
        action_penalty=action_penalty,
    )


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (0.0, math.log(2.0) + 1e-8),
        (1000.0, 1000.0),
        (-18.0, math.log1p(math.exp(-18.0)) + 1e-8),
        (-25.0, math.log1p(math.exp(-18.0)) + 1e-8),
    ],
)
def test_value_is_softplus_above_the_floor(raw: float, value: float) -> None:
    torch.testing.assert_close(losses.DualVariable((), raw)(), torch.tensor(value), rtol=1e-6, atol=0.0)


def test_gradient_is_the_sigmoid_of_the_raw_value() -> None:
    dual = losses.DualVariable((2,), 0.5)
    dual().sum().backward()
    torch.testing.assert_close(dual.raw.grad, torch.full((2,), 0.5).sigmoid())


def test_dual_below_its_floor_falls_no_further() -> None:
    dual = losses.DualVariable((), -25.0)
    losses.alpha_loss(dual().reshape(1), epsilon=0.1, kl=torch.zeros(1)).backward()
    assert dual.raw.grad == 0.0


def test_dual_below_its_floor_comes_back_when_its_bound_is_broken() -> None:
    dual = losses.DualVariable((1,), -18.5)
    optimizer = torch.optim.Adam(dual.parameters(), lr=0.1)
    for _ in range(100):
        optimizer.zero_grad()
        losses.alpha_loss(dual(), epsilon=0.1, kl=torch.tensor([5.0])).backward()
        optimizer.step()
    assert dual.raw.item() > -12.0


def test_each_multiplier_has_its_shape_and_first_value() -> None:
    duals = make_duals()
    torch.testing.assert_close(duals.temperature(), torch.tensor(10.0), rtol=1e-4, atol=0.0)
    torch.testing.assert_close(duals.alpha_mean(), torch.full((3,), math.log1p(math.e)))
    torch.testing.assert_close(duals.alpha_stddev(), torch.full((3,), 1000.0))
    assert make_duals(num_dimensions=1).alpha_mean().shape == (1,)


def test_penalty_temperature_is_there_only_where_the_penalty_is() -> None:
    assert make_duals().penalty_temperature is None
    penalised = make_duals(action_penalty=True).penalty_temperature
    assert penalised is not None
    assert penalised().shape == ()
    assert len([*make_duals(action_penalty=True).parameters()]) == 4


def test_no_dimensions_is_refused() -> None:
    with pytest.raises(ValueError, match="`num_dimensions` must be >= 1, got 0"):
        make_duals(num_dimensions=0)


def test_vmpos_multipliers_begin_at_their_given_values() -> None:
    duals = losses.VMPODuals(init_temperature=0.7, init_alpha=5.0)
    assert duals.temperature().item() == pytest.approx(0.7, rel=1e-5)
    assert duals.alpha_mean().item() == duals.alpha_stddev().item() == pytest.approx(5.0, rel=1e-5)
