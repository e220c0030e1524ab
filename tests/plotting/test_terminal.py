import numpy as np
import pytest

from minerva_acme.plotting import terminal
from minerva_acme.runs import run_curves as curves

RISING = curves.Curve(np.array([0.0, 1000.0, 2000.0]), np.array([0.0, 100.0, 900.0]))
FALLING = curves.Curve(np.array([0.0, 4000.0]), np.array([900.0, 0.0]))


def draw(by_label, **changes):
    return terminal.draw_curves(by_label, **{"title": "Return", "limits": (0.0, 1000.0), **changes})


def drawn_in(lines, characters):
    """The rows and columns of the characters, without title, legend and frame."""
    return [
        (row, column)
        for row, line in enumerate(lines)
        for column, character in enumerate(line)
        if characters(character) and "runs" not in line
    ]


def is_braille(character):
    return 0x2800 < ord(character) <= 0x28FF


def test_the_curve_goes_where_its_values_go_within_the_width_and_without_colours():
    text = draw({"these runs": RISING}, width=60)
    lines = text.splitlines()
    assert "\x1b" not in text and max(map(len, lines)) <= 60
    assert "Return" in lines[0] and "these runs" in text
    points = drawn_in(lines, is_braille)
    left, right = min(points, key=lambda point: point[1]), max(points, key=lambda point: point[1])
    assert left[0] > right[0] and right[1] > 45  # up, and to the right end
    assert lines[-1].split() == ["0", "400", "800", "1,200", "1,600", "2,000"]
    assert [line.split("┤")[0].strip() for line in lines if "┤" in line][:1] == ["1,000"]


def test_the_curve_behind_has_its_own_marks_and_the_axis_ends_with_the_longer_one():
    lines = draw({"these runs": RISING, "other runs": FALLING}).splitlines()
    assert lines[-1].split()[-1] == "4,000"
    fine, dots = drawn_in(lines, is_braille), drawn_in(lines, lambda character: character == "•")
    assert fine and dots
    assert max(column for _, column in fine) < max(column for _, column in dots)


@pytest.mark.parametrize(
    ("last", "end"), [(0, "1"), (30_000, "30,000"), (5_000, "5,000"), (12_001, "12,500")]
)
def test_the_axis_ends_at_a_round_number_behind_the_last_step(last, end):
    curve = curves.Curve(np.array([0.0, last]), np.array([0.0, 900.0]))
    assert draw({"these runs": curve}).splitlines()[-1].split()[-1] == end


def test_a_line_lies_at_its_value():
    without, lines = (draw({"these runs": FALLING}, line_at=at).splitlines() for at in (None, 800.0))
    marked = [row for row, (one, other) in enumerate(zip(without, lines, strict=True)) if one != other]
    assert len(marked) == 1 and lines[marked[0]].lstrip().startswith("800")


def test_one_picture_leaves_nothing_in_the_next():
    alone = draw({"these runs": RISING})
    draw({"others": FALLING}, line_at=500.0)
    assert draw({"these runs": RISING}) == alone


@pytest.mark.parametrize(
    "by_label", [{}, dict.fromkeys("abc", RISING), {"a": curves.Curve(np.array([]), np.array([]))}]
)
def test_one_or_two_curves_with_points_are_drawn(by_label):
    with pytest.raises(ValueError, match="`by_label` must be one or two curves with points"):
        draw(by_label)
