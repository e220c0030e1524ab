import time

import pytest
import torch

from minerva_acme import loggers, testing


class Failing(testing.FakeLogger):
    def write(self, values):
        raise OSError("disk full")

    def close(self):
        super().close()
        raise OSError("disk gone")


class TestInMemoryLogger(testing.LoggerConformance):
    def make_logger(self):
        return loggers.InMemoryLogger()

    def read_rows(self, logger):
        return logger.rows


def test_every_logger_gets_every_row_with_its_numbers_read_out():
    sinks = [testing.FakeLogger(), testing.FakeLogger()]
    with loggers.Dispatcher(sinks) as logger:
        logger.write({"steps": 1, "loss": torch.tensor(0.5)})
    for sink in sinks:
        assert sink.rows == [{"steps": 1, "loss": 0.5}]
        assert type(sink.rows[0]["loss"]) is float
        assert sink.is_closed


def test_a_logger_that_fails_takes_the_row_from_none_of_the_others():
    before, after = testing.FakeLogger(), testing.FakeLogger()
    logger = loggers.Dispatcher([before, Failing(), after])
    with pytest.raises(OSError, match="disk full"):
        logger.write({"steps": 1})
    assert before.rows == after.rows == [{"steps": 1}]
    with pytest.raises(OSError, match="disk gone"):
        logger.close()
    assert before.is_closed and after.is_closed


def test_several_failures_are_raised_together():
    logger = loggers.Dispatcher([Failing(), Failing()])
    with pytest.raises(ExceptionGroup, match="2 loggers failed writing a row") as caught:
        logger.write({"steps": 1})
    assert [str(error) for error in caught.value.exceptions] == ["disk full"] * 2


def test_a_dispatcher_without_loggers_takes_rows():
    with loggers.Dispatcher([]) as logger:
        assert logger.write({"steps": 1}) is None


def test_a_time_filter_hands_on_one_row_in_a_while_and_the_last(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    sink = testing.FakeLogger()
    with loggers.TimeFilter(sink, seconds=2.0) as logger:
        for step, now in enumerate((100.0, 101.0, 101.9, 102.0, 103.0, 103.5)):  # noqa: B007
            logger.write({"steps": step})
        assert [row["steps"] for row in sink.rows] == [0, 3]
    assert [row["steps"] for row in sink.rows] == [0, 3, 5]
    assert sink.is_closed


def test_a_last_row_that_was_handed_on_is_not_written_twice():
    sink = testing.FakeLogger()
    with loggers.TimeFilter(sink, seconds=0.0) as logger:
        for step in range(3):
            logger.write({"steps": step})
    assert [row["steps"] for row in sink.rows] == [0, 1, 2]


def test_a_row_held_back_is_as_it_was_when_it_was_written():
    sink, row = testing.FakeLogger(), {"steps": 1}
    with loggers.TimeFilter(sink, seconds=1000.0) as logger:
        logger.write({"steps": 0})
        logger.write(row)
        row["steps"] = 100
    assert sink.rows[-1] == {"steps": 1}


def test_a_time_filter_closes_its_logger_even_if_the_last_row_fails():
    sink = Failing()
    sink.close = lambda: testing.FakeLogger.close(sink)
    logger = loggers.TimeFilter(sink, seconds=1000.0)
    with pytest.raises(OSError, match="disk full"):
        logger.write({"steps": 0})
    logger.write({"steps": 1})
    with pytest.raises(OSError, match="disk full"):
        logger.close()
    assert sink.is_closed
    logger.close()


def test_a_negative_time_is_refused():
    with pytest.raises(ValueError, match="`seconds` must be >= 0, got -1"):
        loggers.TimeFilter(testing.FakeLogger(), seconds=-1)
