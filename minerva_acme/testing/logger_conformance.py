"""The contract of a logger as tests that your own logger can inherit.

class TestMyLogger(testing.LoggerConformance):
    def make_logger(self):
        return MyLogger(...)

    def read_rows(self, logger):
        return [...]
"""

import abc
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from minerva_acme import loggers


class LoggerConformance(abc.ABC):
    """Tests of a logger: what it takes, what it refuses, and that no row is lost or changed."""

    @abc.abstractmethod
    def make_logger(self) -> loggers.Logger:
        """Makes a new logger, to a place without rows."""

    @abc.abstractmethod
    def read_rows(self, logger: loggers.Logger) -> Sequence[Mapping[str, Any]] | None:
        """Reads the rows of a closed logger, the newest one from `make_logger`, in order.

        Returns:
            For each row its values by name. Numbers may be text, and a name that a row does not have may be
            missing, empty or None. None skips the tests of what was written.
        """

    def test_every_row_is_written_in_order(self) -> None:
        """Each row must be written, the last one too, in the order of the calls."""
        rows = [{"steps": number, "loss": 0.5 - number} for number in range(1, 6)]
        self.check_written(rows, rows, "`write` must lose no row and keep their order")

    def test_a_row_may_have_other_names_than_those_before(self) -> None:
        """A name that is new, or missing, must neither lose its row nor change others."""
        rows: list[dict[str, Any]] = [
            {"steps": 1, "loss": 0.5},
            {"steps": 2, "episodes": 1},
            {"steps": 3, "loss": 0.25, "name": "x"},
        ]
        self.check_written(rows, rows, "`write` must take rows with other names")

    def test_numbers_of_numpy_and_torch_are_numbers(self) -> None:
        """Arrays and tensors of one number must be written as that number, without loss of digits."""
        rows: list[dict[str, Any]] = [
            {"steps": np.int64(1), "loss": np.float32(0.1), "norm": torch.tensor(1.0 / 3.0)},
            {"steps": torch.tensor(2), "loss": np.array(1e-30), "norm": 1.0 / 3.0},
            {"steps": 2**53 - 1, "loss": np.ones((1, 1)), "norm": torch.full((1,), 123456.789).double()},
        ]
        plain = [
            {name: value if isinstance(value, int | float) else value.item() for name, value in row.items()}
            for row in rows
        ]
        self.check_written(rows, plain, "`write` must take numbers of numpy and torch as they are")

    def test_a_value_that_is_not_one_number_or_text_is_refused(self) -> None:
        """`write`, or else `close`, must raise ValueError for a value that no row can have."""
        for value in (np.zeros(3), torch.zeros(2, 2), None, [1.0], {"a": 1.0}):
            logger, is_refused = self.make_logger(), False
            try:
                logger.write({"steps": 1, "loss": value})
                logger.close()
            except ValueError:
                is_refused = True
                with contextlib.suppress(Exception):
                    logger.close()
            assert is_refused, (
                f"`write` must raise ValueError for a value that is neither one number nor text, got no "
                f"error for {value!r}."
            )

    def test_a_row_is_left_as_it_is_and_belongs_to_the_caller(self) -> None:
        """`write` must not change the row, and the caller may fill the same one again."""
        logger, row, written = self.make_logger(), {"steps": 0, "loss": 0.5}, []
        for number in range(1, 4):
            row["steps"] = number
            before = dict(row)
            logger.write(row)
            assert row == before, f"`write` must not change its row, expected {before}, got {row}."
            written.append(before)
        row.clear()
        logger.close()
        self.check_found(logger, written, "`write` must write a row as it was, whatever becomes of it later")

    def test_close_may_come_twice_and_no_row_after_it_is_lost_in_silence(self) -> None:
        """A second `close` must do no harm; a row after it must be refused with a ValueError, or written."""
        logger, rows = self.make_logger(), [{"steps": 1, "loss": 0.5}, {"steps": 2, "loss": 0.25}]
        logger.write(rows[0])
        for attempt in ("first", "second"):
            try:
                logger.close()
            except Exception as error:
                raise AssertionError(f"The {attempt} `close` must not raise, got {error!r}.") from error
        self.check_found(logger, rows[:1], "`close` must keep what was written")
        try:
            logger.write(rows[1])
        except ValueError:
            return
        except Exception as error:
            if isinstance(error, ExceptionGroup) and error.split(ValueError)[1] is None:
                return  # of several loggers
            raise AssertionError(
                f"`write` of a closed logger must raise ValueError, got {error!r}."
            ) from error
        self.check_found(logger, rows, "`write` of a closed logger must raise ValueError, got no error")

    def check_written(
        self, rows: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]], promise: str
    ) -> None:
        """Writes rows with a new logger, and checks that it has the expected ones."""
        logger = self.make_logger()
        for row in rows:
            try:
                logger.write(row)
            except ValueError as error:
                raise AssertionError(f"{promise}, got {error!r} for {row}.") from error
        logger.close()
        self.check_found(logger, expected, promise)

    def check_found(
        self, logger: loggers.Logger, expected: Sequence[Mapping[str, Any]], promise: str
    ) -> None:
        """Checks that a closed logger has written the expected rows."""
        found = self.read_rows(logger)
        if found is None:
            return
        shown = [{name: value for name, value in row.items() if value not in ("", None)} for row in found]
        assert len(shown) == len(expected) and all(map(_are_same, shown, expected)), (
            f"{promise}; expected the rows {[*map(dict, expected)]}, got {shown}."
        )


def _are_same(found: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    """Returns whether a row has the expected values, where numbers may be text."""
    if found.keys() != expected.keys():
        return False
    try:
        return all(
            found[name] == value if isinstance(value, str) else type(value)(found[name]) == value
            for name, value in expected.items()
        )
    except ValueError:
        return False
