"""The figures of a report."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import matplotlib

from minerva_acme import results
from minerva_acme.plotting import figure as curve_figure
from minerva_acme.plotting import panels, statistics
from minerva_acme.plotting.figure import COLOURS, LINES, STYLE, NotebookFigure
from minerva_acme.plotting.front import Front
from minerva_acme.plotting.report import Bar, Report

_MOST_PANELS = 12  # of a figure
_WIDTH, _HEIGHT = 5.5, 3.0  # inches
_BAR_HEIGHT, _MARGIN = 0.28, 0.6  # inches
_LINE_HEIGHT = 0.12  # inches, of each further line of a name
_LONG_NAME = 32  # characters
_POINTS = tuple(itertools.product("os^Dv", COLOURS))  # each further round of the palette has another shape


class Drawn(NamedTuple):
    """A figure of a report."""

    name: str  # of its file; several figures may share one
    title: str
    caption: str
    figure: NotebookFigure


def draw(report: Report, labels: Sequence[str], metric: str) -> Iterator[Drawn]:
    """Draws the figures of a report.

    Args:
        report: The report.
        labels: The names of its experiments.
        metric: The metric that it compares.
    """
    y_label = "Return" if metric == results.RETURN else metric
    shown = []
    if report.aggregate is not None:
        shown.append(("sample_efficiency", "Sample efficiency", "Normalised score", [report.aggregate]))
    for start in range(0, len(report.by_environment), _MOST_PANELS):
        some = report.by_environment[start : start + _MOST_PANELS]
        shown.append(("environments", "Environments", y_label, [*some]))
    for name, title, y_label, some in shown:
        drawing = {"y_label": y_label, "x_label": report.x_label}
        caption = panels.make_caption(some, **drawing)
        yield Drawn(name, title, caption, curve_figure.draw(some, labels=labels, **drawing))

    band = "Bands: 95% bootstrap intervals, for experiments with several runs in an environment."
    title = "Interquartile mean"
    x_label = f"{title} of normalised scores"
    yield Drawn(
        "scores", title, band, draw_bars(report.scores, x_label=x_label, limits=(0.0, 1.0), middle=None)
    )
    if report.profiles:
        yield Drawn("performance_profile", "Performance profile", band, draw_profiles(report.profiles))
    if report.improvements:
        title = "Probability of improvement"
        bars = draw_bars(report.improvements, x_label=title, limits=(0.0, 1.0), middle=0.5)
        yield Drawn("improvement", title, f"{band} Dotted: neither is better.", bars)
    for index, front in enumerate(report.fronts):
        title = f"Trade-off of {front.x_name} and {front.y_name}"
        yield Drawn(f"front_{index}", title, "Open marks: dominated. Line: the others.", draw_front(front))


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
