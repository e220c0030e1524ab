import math

import numpy as np
import pytest

from minerva_acme import loggers


def test_a_summary_agrees_with_numpy():
    values = 1e6 + np.random.default_rng(0).normal(size=1000)
    summary = loggers.Summary()
    for value in values:
        summary.add({"x": value})
    expected = (values.mean(), values.std(), values.min(), values.max(), values[-1], values.sum())
    np.testing.assert_allclose(summary.result()["x"], expected, rtol=1e-9)


def test_a_name_is_summarised_over_the_rows_that_have_it():
    summary = loggers.Summary()
    for row in ({"a": 1}, {"a": 3, "b": True}, {}):
        summary.add(row)
    assert summary.result() == {"a": (2.0, 1.0, 1.0, 3.0, 3.0, 4.0), "b": (1.0, 0.0, 1.0, 1.0, 1.0, 1.0)}


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_nan_is_not_hidden_by_the_numbers_around_it(place):
    values = [1.0, 2.0]
    values.insert(place, math.nan)
    summary = loggers.Summary()
    for value in values:
        summary.add({"x": value})
    assert all(math.isnan(number) for number in summary.result()["x"][:4])
