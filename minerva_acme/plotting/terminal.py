"""Learning curves drawn with characters in a terminal."""

import math
from collections.abc import Mapping

import numpy as np
import plotext

from minerva_acme.runs import run_curves

_HEIGHT = 18  # lines
_NUM_TICKS = 6
_ROUND = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_MARKERS = ("braille", "dot")


def draw_curves(
    by_label: Mapping[str, run_curves.Curve],
    *,
    title: str,
    limits: tuple[float, float],
    line_at: float | None = None,
    width: int = 80,
) -> str:
    """Draws curves without colours.

    Args:
        by_label: One or two curves with points; the first is a fine line, the second a dotted line behind it.
        title: The title above the curves.
        limits: The limits of the vertical axis.
        line_at: A value at which a horizontal line is drawn, or None for no line.
        width: The width in columns.

    Raises:
        ValueError: There is no curve, there are more than two, or one has no points.
    """
    if not 1 <= len(by_label) <= len(_MARKERS) or not all(len(curve.x) for curve in by_label.values()):
        points = {label: len(curve.x) for label, curve in by_label.items()}
        raise ValueError(f"`by_label` must be one or two curves with points, got points of {points}.")
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plot_size(width, _HEIGHT)
    plotext.title(title)
    last = _round_up(max(float(curve.x[-1]) for curve in by_label.values()))
    for span, limit, ticks in (
        ((0.0, last), plotext.xlim, plotext.xticks),
        (limits, plotext.ylim, plotext.yticks),
    ):
        limit(*span)
        places = np.linspace(*span, _NUM_TICKS).tolist()
        ticks(places, [f"{place:,.0f}" for place in places])
    if line_at is not None:
        plotext.hline(line_at)
    # Later curves are drawn on top.
    for (label, curve), marker in reversed([*zip(by_label.items(), _MARKERS, strict=False)]):
        plotext.plot(curve.x.tolist(), curve.values.tolist(), marker=marker, label=label)
    drawn: str = plotext.uncolorize(plotext.build())
    plotext.clear_figure()
    return "\n".join(line.rstrip() for line in drawn.splitlines())


def _round_up(end: float) -> float:
    """Returns the end of an axis that contains a value and has ticks at round numbers."""
    step = (end or 1.0) / (_NUM_TICKS - 1)
    magnitude = 10.0 ** math.floor(math.log10(step))
    return (_NUM_TICKS - 1) * magnitude * next(part for part in _ROUND if part * magnitude >= step)
