"""Our loggers pass their contract, and broken ones do not."""

import csv
import itertools

import numpy as np
import pytest

from minerva_acme import loggers, testing
from minerva_acme.loggers import base

from . import wrong_parts

BROKEN = []
breaks = wrong_parts.noted_in(BROKEN)


class FakeSuite(testing.LoggerConformance):
    part = testing.FakeLogger

    def make_logger(self):
        return self.part()

    def read_rows(self, logger):
        return [*map(base.to_plain, logger.rows)]


class TestFake(FakeSuite):
    pass


class FileSuite(testing.LoggerConformance):
    """Loggers that write a table into a folder of their own."""

    @pytest.fixture(autouse=True)
    def in_folders(self, tmp_path):
        self._folders = (tmp_path / str(number) for number in itertools.count())

    def make_logger(self):
        self.folder = next(self._folders)
        return self.wrap(loggers.CSVLogger(self.folder, "rows"))

    def wrap(self, logger):
        return logger

    def read_rows(self, logger):
        with open(self.folder / "rows.csv", newline="") as file:
            return list(csv.DictReader(file))


class TestCSV(FileSuite):
    pass


class TestAsync(FileSuite):
    def wrap(self, logger):
        return loggers.AsyncLogger(logger)


class TestDispatcher(FileSuite):
    def wrap(self, logger):
        return loggers.Dispatcher([logger, testing.FakeLogger()])


class TestTimeFilter(FileSuite):
    def wrap(self, logger):
        return loggers.TimeFilter(logger, 0.0)


class TestTensorBoard(testing.LoggerConformance):
    @pytest.fixture(autouse=True)
    def in_a_folder(self, tmp_path):
        self._folders = (tmp_path / str(number) for number in itertools.count())

    def make_logger(self):
        return loggers.TensorBoardLogger(next(self._folders), "rows", steps_key="steps")

    def read_rows(self, logger):
        return None


class TestTerminal(testing.LoggerConformance):
    def make_logger(self):
        return loggers.TerminalLogger("rows")

    def read_rows(self, logger):
        return None


@breaks("every_row_is_written_in_order", "`write` must lose no row and keep their order;")
class LosesTheLastRow(testing.FakeLogger):
    """Writes a row when the next one comes."""

    def __init__(self):
        super().__init__()
        self._waiting = None

    def write(self, values):
        row, self._waiting = self._waiting, dict(values)
        super().write({} if row is None else row)
        if row is None:
            self.rows.clear()


@breaks("every_row_is_written_in_order", "`write` must lose no row and keep their order;")
class WritesBackwards(testing.FakeLogger):
    def write(self, values):
        super().write(values)
        self.rows.insert(0, self.rows.pop())


@breaks(
    "a_row_may_have_other_names_than_those_before", "`write` must take rows with other names; expected the"
)
class LosesNewNames(testing.FakeLogger):
    """Takes the names of its first row for all."""

    def write(self, values):
        super().write(values)
        names = self.rows[0].keys()
        self.rows[-1] = {name: value for name, value in self.rows[-1].items() if name in names}


@breaks("a_row_may_have_other_names_than_those_before", "`write` must take rows with other names, got")
class RefusesOtherNames(testing.FakeLogger):
    def write(self, values):
        if self.rows and values.keys() != self.rows[0].keys():
            raise ValueError("These are other columns.")
        super().write(values)


@breaks(
    "numbers_of_numpy_and_torch_are_numbers", "`write` must take numbers of numpy and torch as they are, got"
)
class TakesPlainNumbersAlone(testing.FakeLogger):
    def write(self, values):
        if not all(isinstance(value, int | float | str) for value in values.values()):
            raise ValueError("Only numbers can be logged.")
        super().write(values)


@breaks("numbers_of_numpy_and_torch_are_numbers", "`write` must take numbers of numpy and torch as they are;")
class RoundsNumbers(testing.FakeLogger):
    def write(self, values):
        super().write({name: f"{float(value):.6g}" for name, value in base.to_plain(values).items()})


@breaks(
    "a_value_that_is_not_one_number_or_text_is_refused", "`write` must raise ValueError for a value that is"
)
class TakesAnything(testing.FakeLogger):
    def write(self, values):
        self.rows.append(dict(values))


@breaks(
    "a_row_is_left_as_it_is_and_belongs_to_the_caller", "`write` must not change its row, expected {'steps':"
)
class StampsTheRow(testing.FakeLogger):
    def write(self, values):
        super().write(values)
        values["time"] = 0.0


@breaks(
    "a_row_is_left_as_it_is_and_belongs_to_the_caller", "`write` must write a row as it was, whatever becomes"
)
class KeepsTheCallersRow(testing.FakeLogger):
    def write(self, values):
        super().write(values)
        self.rows[-1] = values


@breaks(
    "close_may_come_twice_and_no_row_after_it_is_lost_in_silence", "The second `close` must not raise, got"
)
class ClosesOnce(testing.FakeLogger):
    def close(self):
        if self.is_closed:
            raise OSError("The file is closed.")
        super().close()


@breaks(
    "close_may_come_twice_and_no_row_after_it_is_lost_in_silence",
    "`write` of a closed logger must raise ValueError, got no error; expected the rows",
)
class LosesRowsWhenClosed(testing.FakeLogger):
    def write(self, values):
        if not self.is_closed:
            super().write(values)


@breaks(
    "close_may_come_twice_and_no_row_after_it_is_lost_in_silence",
    "`write` of a closed logger must raise ValueError, got AttributeError(",
)
class BreaksWhenClosed(testing.FakeLogger):
    def write(self, values):
        if self.is_closed:
            raise AttributeError("'NoneType' object has no attribute 'write'")
        super().write(values)


@pytest.mark.parametrize(("part", "test", "message"), BROKEN)
def test_a_broken_logger_is_found_and_named(part, test, message):
    broken = type("Broken", (FakeSuite,), {"part": part})()
    with pytest.raises(AssertionError) as caught:
        getattr(broken, f"test_{test}")()
    assert str(caught.value).startswith(message)


def test_rows_of_numbers_are_compared_as_numbers():
    suite = FakeSuite()
    logger = suite.make_logger()
    logger.rows = [{"steps": "1", "loss": "0.1", "other": ""}]
    suite.check_found(logger, [{"steps": 1, "loss": 0.1}], "They must be equal")
    with pytest.raises(AssertionError, match="They must be equal; expected"):
        suite.check_found(logger, [{"steps": 1, "loss": float(np.float32(0.1))}], "They must be equal")
