"""An asynchronous logger does not wait, loses no row and hides no error."""

import subprocess
import sys
import threading

import pytest

from minerva_acme import loggers, testing


class Gated(testing.FakeLogger):
    """Writes nothing before its gate is opened."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.threads = set()

    def write(self, values):
        assert self.gate.wait(10)
        self.threads.add(threading.current_thread())
        super().write(values)


class FailsAt(testing.FakeLogger):
    def __init__(self, *steps, closes=True):
        super().__init__()
        self.steps, self.closes = steps, closes

    def write(self, values):
        if values["step"] in self.steps:
            raise OSError(f"disk full at {values['step']}")
        super().write(values)

    def close(self):
        super().close()
        if not self.closes:
            raise OSError("disk gone")


def test_writing_does_not_wait_and_close_delivers_everything_in_order():
    sink = Gated()
    logger = loggers.AsyncLogger(sink)
    for step in range(100):
        logger.write({"step": step})
    assert sink.rows == [] and not sink.is_closed
    sink.gate.set()
    logger.close()
    assert [row["step"] for row in sink.rows] == list(range(100))
    assert sink.is_closed
    assert threading.current_thread() not in sink.threads and len(sink.threads) == 1


def test_a_full_queue_makes_the_writer_wait_and_loses_nothing():
    sink = Gated()
    logger = loggers.AsyncLogger(sink, max_pending=2)
    written = []

    def write():
        for step in range(10):
            logger.write({"step": step})
            written.append(step)

    writer = threading.Thread(target=write)
    writer.start()
    writer.join(0.2)
    # One is with the thread, two wait, the fourth is held.
    assert writer.is_alive() and len(written) <= 3
    sink.gate.set()
    writer.join(10)
    logger.close()
    assert [row["step"] for row in sink.rows] == list(range(10))


def test_a_row_is_as_it_was_when_it_was_written():
    sink, row = Gated(), {"step": 1}
    with loggers.AsyncLogger(sink) as logger:
        logger.write(row)
        row["step"] = 2
        sink.gate.set()
    assert sink.rows == [{"step": 1}]


def test_an_error_is_raised_by_a_later_write_which_takes_its_row_all_the_same():
    sink = FailsAt(0)
    logger = loggers.AsyncLogger(sink)
    with pytest.raises(OSError, match="disk full at 0"):
        for step in range(1_000_000):
            last = step
            logger.write({"step": step})
    logger.close()
    assert [row["step"] for row in sink.rows] == list(range(1, last + 1))


def test_errors_after_the_last_write_are_raised_together_by_close_and_only_once():
    sink = FailsAt(5, 6, closes=False)
    gate = threading.Event()
    write, sink.write = sink.write, lambda values: gate.wait(10) and write(values)
    logger = loggers.AsyncLogger(sink)
    for step in range(10):
        logger.write({"step": step})
    gate.set()
    with pytest.raises(ExceptionGroup, match="The logger failed 3 times writing rows and closing") as caught:
        logger.close()
    assert [str(error) for error in caught.value.exceptions] == [
        "disk full at 5",
        "disk full at 6",
        "disk gone",
    ]
    assert [row["step"] for row in sink.rows] == [0, 1, 2, 3, 4, 7, 8, 9]
    logger.close()
    assert sink.is_closed


def test_writing_after_close_is_refused():
    logger = loggers.AsyncLogger(testing.FakeLogger())
    logger.close()
    with pytest.raises(ValueError, match="The asynchronous logger is closed. Make a new one."):
        logger.write({"step": 1})


def test_rows_of_several_threads_all_arrive_each_threads_own_in_order():
    sink = testing.FakeLogger()
    with loggers.AsyncLogger(sink, max_pending=3) as logger:
        writers = [
            threading.Thread(target=lambda name=name: [logger.write({name: i}) for i in range(50)])
            for name in "abcd"
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
    for name in "abcd":
        assert [row[name] for row in sink.rows if name in row] == list(range(50))


def test_a_program_that_ends_without_close_delivers_what_is_on_its_way(tmp_path):
    code = f"""
from minerva_acme import loggers
logger = loggers.AsyncLogger(loggers.CSVLogger({str(tmp_path)!r}, "run"))
for step in range(1000):
    logger.write({{"step": step}})
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "run.csv").read_text().split()[-1] == "999"


def test_no_room_for_a_row_is_refused():
    with pytest.raises(ValueError, match="`max_pending` must be >= 1 row, got 0"):
        loggers.AsyncLogger(testing.FakeLogger(), max_pending=0)
