"""Rows as lines on the terminal."""

import sys
from collections.abc import Mapping
from typing import Any

from minerva_acme.loggers import base

_COLUMNS = 80
_NUMBER_COLUMNS = len("-1.23e-05")


class TerminalLogger(base.Logger):
    """Writes rows as lines of at most 80 columns (a longer cell gets its own line).

        learner  learner_steps      1200  loss/critic    0.0123  temperature      0.91
                 q/max               5.1

    Rows with the same names are aligned with each other.
    """

    def __init__(self, label: str) -> None:
        """Args: label: The beginning of each row."""
        self._label = label

    def write(self, values: Mapping[str, Any]) -> None:
        cells = [f"{name} {format_value(value)}" for name, value in base.to_plain(values).items()]
        line, empty = self._label, " " * len(self._label)
        for cell in cells:
            if line != empty and len(line) + 2 + len(cell) > _COLUMNS:
                _write(line)
                line = empty
            line += "  " + cell
        _write(line)

    def close(self) -> None:
        pass


def format_value(value: int | float | str) -> str:
    """Formats a value, right-aligned to a fixed width; floats have three significant digits, integers all."""
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    if isinstance(value, float) and 999.5 <= abs(value) < 999_999.5:
        text = f"{value:.0f}"
    return text.rjust(_NUMBER_COLUMNS)


def _write(line: str) -> None:
    # Standard output is looked up for each line: a progress bar or a test may have replaced it.
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
