import math
import time

import numpy as np
import pytest
import torch

from minerva_acme import loggers, testing


class Failing(testing.FakeLogger):
    def write(self, values):
        raise OSError("disk full")


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


def test_a_step_filter_hands_on_one_row_in_so_many_steps_and_the_last():
    sink = testing.FakeLogger()
    with loggers.StepFilter(sink, "steps", 100) as logger:
        for steps in (7, 50, 106, 107, 150, 307, 310):
            logger.write({"steps": steps})
        assert [row["steps"] for row in sink.rows] == [7, 107, 307]
    assert [row["steps"] for row in sink.rows] == [7, 107, 307, 310]
    assert sink.is_closed


def test_a_row_without_the_count_is_refused_and_the_way_out_named():
    logger = loggers.StepFilter(testing.FakeLogger(), "steps", 100)
    with pytest.raises(
        ValueError, match=r"must hold `steps`, the count that its rate goes by, got \['loss'\]"
    ):
        logger.write({"loss": 1.0})


@pytest.mark.parametrize("steps", [0, -1])
def test_a_rate_of_no_steps_is_refused(steps):
    with pytest.raises(ValueError, match=f"`steps` must be >= 1, got {steps}"):
        loggers.EverySteps("steps", steps)


def test_rows_between_two_writes_become_one_with_mean_min_and_max():
    sink = testing.FakeLogger()
    logger = loggers.Aggregator(sink, is_due=loggers.EverySteps("steps", 20), counts=["steps"])
    rows = [(0, 9.0), (10, 1.0), (20, 4.0), (30, torch.tensor(2.0)), (35, np.float32(6.0))]
    for steps, loss in rows:
        logger.write({"steps": steps, "loss": loss, "phase": f"at {steps}"})
    assert sink.rows == [
        {"steps": 0, "phase": "at 0", "loss": 9.0, "loss/min": 9.0, "loss/max": 9.0},
        {"steps": 20, "phase": "at 20", "loss": 2.5, "loss/min": 1.0, "loss/max": 4.0},
    ]
    logger.close()
    assert sink.rows[2:] == [{"steps": 35, "phase": "at 35", "loss": 4.0, "loss/min": 2.0, "loss/max": 6.0}]
    assert sink.is_closed


def test_an_aggregator_by_time_writes_once_in_a_while(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    sink = testing.FakeLogger()
    with loggers.Aggregator(sink, is_due=loggers.EverySeconds(2.0), counts=()) as logger:
        for now in (100.0, 101.0, 102.0):
            logger.write({"x": now})
    assert [row["x"] for row in sink.rows] == [100.0, 101.5]


def test_an_aggregator_that_was_given_nothing_writes_nothing():
    sink = testing.FakeLogger()
    with loggers.Aggregator(sink, is_due=loggers.EverySeconds(0.0), counts=()):
        pass
    assert sink.rows == [] and sink.is_closed


def test_an_aggregator_closes_its_logger_even_if_the_last_row_fails():
    sink = Failing()
    logger = loggers.Aggregator(sink, is_due=lambda row: False, counts=())
    logger.write({"x": 1.0})
    with pytest.raises(OSError, match="disk full"):
        logger.close()
    assert sink.is_closed
