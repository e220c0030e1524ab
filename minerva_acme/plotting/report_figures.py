"""The figures of a report other than learning curves."""

import itertools
import re
from collections.abc import Mapping, Sequence

import matplotlib

from minerva_acme.plotting import statistics
from minerva_acme.plotting.figure import COLOURS, LINES, STYLE, NotebookFigure
from minerva_acme.plotting.front import Front
from minerva_acme.plotting.report import Bar

_WIDTH, _HEIGHT = 5.5, 3.0  # inches
_BAR_HEIGHT, _MARGIN = 0.28, 0.6  # inches
_LINE_HEIGHT = 0.12  # inches, of each further line of a name
_LONG_NAME = 32  # characters
_POINTS = tuple(itertools.product("os^Dv", COLOURS))  # each further round of the palette has another shape


def draw_profiles(profiles: Mapping[str, statistics.Profile]) -> NotebookFigure:
    """Draws the share of runs above each score."""
    with matplotlib.rc_context(STYLE):
        figure = NotebookFigure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
        ax = figure.subplots()
        for (name, profile), (colour, style) in zip(profiles.items(), itertools.cycle(LINES), strict=False):
            ax.plot(*profile[:2], color=colour, linestyle=style, label=name, drawstyle="steps-post")
            if profile.interval is not None:
                ax.fill_between(
                    profile.thresholds, *profile.interval, color=colour, alpha=0.2, linewidth=0, step="post"
                )
        ax.set_xlim(0.0, 1.0)
        ax.set_ylim(0.0, 1.02)
        ax.set_xlabel("Normalised score")
        ax.set_ylabel("Share of runs above it")
        # Each long name has its own line.
        figure.legend(loc="outside lower center", ncols=2 if max(map(len, profiles)) < _LONG_NAME else 1)
    return figure


def draw_bars(
    bars: Sequence[Bar], *, x_label: str, limits: tuple[float, float], middle: float | None
) -> NotebookFigure:
    """Draws estimates with their intervals, one below the other.

    Args:
        bars: The estimates, at least one.
        x_label: The label of the horizontal axis.
        limits: The limits of the horizontal axis, which is widened to fit all values.
        middle: The position of a dotted line, such as the probability of a tie, or None for no line.
    """
    names = ["\n".join(in_lines(bar.label)) for bar in bars]
    height = _MARGIN + sum(_BAR_HEIGHT + _LINE_HEIGHT * name.count("\n") for name in names)
    with matplotlib.rc_context(STYLE):
        figure = NotebookFigure(figsize=(_WIDTH, height), layout="constrained")
        ax = figure.subplots()
        if middle is not None:
            ax.axvline(middle, color="0.5", linestyle=":", linewidth=0.8)
        shown = list(limits)
        for index, bar in enumerate(bars):
            colour = COLOURS[0] if middle is not None else COLOURS[index % len(COLOURS)]
            low, high = bar.interval or (bar.value, bar.value)
            ax.plot([low, high], [index, index], color=colour, linewidth=5, alpha=0.35, solid_capstyle="butt")
            ax.plot([bar.value], [index], color=colour, marker="|", markersize=9, markeredgewidth=1.5)
            shown += [low, high]
        ax.set_xlim(min(shown), max(shown))
        ax.set_yticks(range(len(bars)), names)
        ax.set_ylim(len(bars) - 0.4, -0.6)
        ax.set_xlabel(x_label)
    return figure


def draw_front(shown: Front) -> NotebookFigure:
    """Draws the returns by two rewards, and a line through the points that no other one dominates."""
    with matplotlib.rc_context(STYLE):
        figure = NotebookFigure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
        ax = figure.subplots()
        best = sorted((point.x, point.y) for point in shown.points if not point.is_dominated)
        ax.plot(*zip(*best, strict=True), color="0.5", linewidth=0.8, drawstyle="steps-pre")
        for point, (shape, colour) in zip(shown.points, itertools.cycle(_POINTS), strict=False):
            face = "none" if point.is_dominated else colour
            ax.plot([point.x], [point.y], shape, color=colour, markerfacecolor=face, label=point.label)
        ax.set_xlabel(f"Return: {shown.x_name}")
        ax.set_ylabel(f"Return: {shown.y_name}")
        figure.legend(loc="outside lower center", ncols=1)
    return figure


def in_lines(name: str) -> list[str]:
    """Breaks a long name into lines, only between its settings: "mpo+", "critic_target=one_step"."""
    lines = [""]
    for part in re.split(r"(?<=[+, ])", name):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > _LONG_NAME:
            lines.append("")
        lines[-1] += part
    return [line.rstrip() for line in lines]
