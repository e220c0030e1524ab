import contextlib
import io
import re

import numpy as np
import pytest
import torch

from minerva_acme import loggers
from minerva_acme.loggers import terminal

ROW = {
    "learner_steps": 1200,
    "loss/critic": 0.0123456,
    "temperature": torch.tensor(0.9137),
    "q/max": np.float32(51234.4),
    "loss/alpha_mean": -1.2345e-05,
    "note": "diverging",
}


def write(*rows, label="learner"):
    text = io.StringIO()
    with contextlib.redirect_stdout(text), loggers.TerminalLogger(label) as logger:
        for row in rows:
            logger.write(row)
    return text.getvalue().splitlines()


def test_a_row_fits_eighty_columns_and_says_everything():
    lines = write(ROW)
    assert lines == [
        "learner  learner_steps      1200  loss/critic    0.0123  temperature     0.914",
        "         q/max     51234  loss/alpha_mean -1.23e-05  note diverging",
    ]
    assert max(map(len, lines)) <= 80


def test_rows_with_the_same_names_are_aligned():
    other = {name: value if name == "note" else 3 * value for name, value in ROW.items()}
    lines = write(ROW, other)
    ends = [[match.end() for match in re.finditer(r"\S+", line)] for line in lines]
    assert len(lines) == 4
    assert ends[:2] == ends[2:]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.0123456, "0.0123"),
        (999.4, "999"),
        (999.6, "1000"),
        (1234.56, "1235"),
        (-999_999.0, "-999999"),
        (999_999.9, "1e+06"),
        (1.5e7, "1.5e+07"),
        (123_456_789, "123456789"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        ("text", "text"),
    ],
)
def test_numbers_have_three_digits_or_more(value, text):
    assert terminal.format_value(value).strip() == text


def test_a_cell_that_is_too_long_is_not_cut():
    long = "x" * 100
    assert write({"steps": 1, "note": long, "loss": 0.5}) == [
        "learner  steps         1",
        f"         note {long}",
        "         loss       0.5",
    ]


def test_an_empty_row_is_its_label():
    assert write({}) == ["learner"]


def test_by_default_standard_output_gets_the_lines(capsys):
    with loggers.TerminalLogger("actor") as logger:
        logger.write({"steps": 1})
    assert capsys.readouterr().out == "actor  steps         1\n"
