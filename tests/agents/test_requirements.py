"""What agents ask of an environment's spec."""

import numpy as np
import pytest

from minerva_acme import specs
from minerva_acme.agents import requirements


@pytest.mark.parametrize(
    "low, high",
    [
        ([-1.0, -1.0], [1.0, np.inf]),
        ([-np.inf, -1.0], [1.0, 1.0]),
        ([-1.0, 1.0], [1.0, 1.0]),
    ],
)
def test_bounds_are_finite_and_low_is_below_high_in_every_dimension(continuous_spec, low, high):
    def with_bounds(low, high):
        actions = specs.BoundedArray((2,), np.float32, np.float32(low), np.float32(high), name="action")
        return continuous_spec._replace(actions=actions)

    requirements.check_bounded("This agent", with_bounds([-1.0, 0.0], [1.0, 2.0]))
    with pytest.raises(
        ValueError, match=r"^This agent needs actions with finite bounds, low below high, got "
    ):
        requirements.check_bounded("This agent", with_bounds(low, high))
