"""Figures of learning curves for papers: a panel per environment, readable at the width of a column."""

import io
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from minerva_acme.machine import writing
from minerva_acme.names import readable

try:
    import matplotlib
except ModuleNotFoundError as error:
    needed = readable.missing(error, "pip install 'minerva-acme[plot]'")
    raise ModuleNotFoundError(f"Figures need {needed}", name=error.name) from error
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import EngFormatter, MaxNLocator

from minerva_acme.plotting import curves
from minerva_acme.plotting.panels import (
    FRAMES,
    MAX_RUNS_DRAWN,
    Group,
    Panel,
    describe_band,
    describe_seeds,
    make_group,
)
from minerva_acme.runs import run_curves

# The palette of Okabe and Ito (2008), safe for colour-blind readers, without yellow, which is pale on paper.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# Dotted lines are reserved for random actions.
_Dashes = tuple[int, tuple[float, ...]]
_DASHES = ((0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (10, 2)), (0, (5, 1, 1, 1, 1, 1)))
_Line = tuple[str, Any]
LINES: tuple[_Line, ...] = tuple((colour, style) for style in ("-", *_DASHES) for colour in COLOURS)
"""Colours and styles of lines: each further round of the palette has another style."""

_GREY = "0.5"
_MAX_MARKED_POINTS = 15
_MIN_PUBLISHED_POINTS = 3
_LEGEND_MARGIN_INCHES = 0.05
_NAME_HEIGHT = 0.06  # of a curve's name at its end, as a share of the panel's height
_MOST_NAMES = 16
# The width and height of a row by its number of columns, without the legend.
_INCHES = {1: (3.5, 2.5), 2: (5.5, 2.3), 3: (6.75, 1.75), 4: (9.0, 1.75)}
# Columns by the number of panels; other numbers have at most three, or four from _MIN_FOR_FOUR_COLUMNS on.
_COLUMNS = {4: 2}
_MIN_FOR_FOUR_COLUMNS = 13
_DOTS_PER_INCH = 300
_NOTEBOOK_DOTS_PER_INCH = 120
STYLE = matplotlib.rc_params_from_file(
    pathlib.Path(__file__).with_name("paper.mplstyle"), use_default_template=False
)


class NotebookFigure(Figure):
    """A matplotlib figure that a notebook shows as a picture, without pyplot."""

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=_NOTEBOOK_DOTS_PER_INCH)
        return picture.getvalue()


def draw_curves(
    by_label: Mapping[str, run_curves.Curve | Sequence[run_curves.Curve]],
    *,
    title: str = "",
    y_label: str = "Evaluation return",
    x_label: str = "Environment steps",
    random: float | None = None,
    limits: tuple[float, float] | None = None,
) -> NotebookFigure:
    """Draws learning curves in one panel, a line for each label.

        figure = plotting.draw_curves({"PPO": plotting.read_curve("runs/first", "evaluator/episode_return")})
        figure.savefig("curve.pdf")

    Args:
        by_label: One curve, or the curves of runs that differ only in their seed; `read_curve` reads one from
            a run's folder, `make_curve` makes one from rows. Several are drawn as their interquartile mean,
            with an interval.
        title: The title.
        y_label: The label of the vertical axis.
        x_label: The label of the horizontal axis.
        random: The return of random actions, or None to draw no line for it.
        limits: The limits of the vertical axis, or None to fit the curves.

    Raises:
        ValueError: There is no curve, or one has no points.
    """
    if not by_label:
        raise ValueError("`by_label` must hold at least one curve, got none. plotting.read_curve reads one.")
    generator = np.random.default_rng(0)  # of the bootstrap
    groups = [
        make_group(label, [[given] if isinstance(given, run_curves.Curve) else [*given]], generator)
        for label, given in by_label.items()
    ]
    panel = Panel(title, groups, random=random, limits=limits)
    return draw([panel], y_label=y_label, x_label=x_label)


def draw(
    panels: Sequence[Panel],
    *,
    y_label: str,
    x_label: str = FRAMES,
    labels: Sequence[str] = (),
) -> NotebookFigure:
    """Draws panels in a grid, with one legend below; the curves of a single panel are named at their ends.

    A label has the same line in every panel: a colour, and from the eighth label on another style. Published
    curves are thin and dashed, in the colours that are left. The horizontal axis ends with the longest run,
    even if published curves are longer. It is extended, at most to twice its length, if it would otherwise
    show fewer than three points of a published curve, or to end where the longest panel does. The legend
    lists everything that is visible in at least one panel, but for what has its name at its end, and says
    what the bands are; `make_caption` describes the rest.

    Args:
        panels: The panels, at least one.
        y_label: The label of the vertical axes.
        x_label: The label of the horizontal axes.
        labels: Labels that get the first lines, in this order, to match other figures.

    Raises:
        ValueError: There are no panels.
    """
    if not panels:
        raise ValueError("`panels` must hold at least one panel, got none. Give runs with evaluations.")
    shown = dict.fromkeys(group.label for panel in panels for group in panel.groups)
    lines = dict(zip(dict.fromkeys([*labels, *shown]), itertools.cycle(LINES), strict=False))
    ends = _horizontal_limits(panels)
    seen = [_seen(panel, limits) for panel, limits in zip(panels, ends, strict=True)]
    published = dict.fromkeys(label for curves_there in seen for label, _ in curves_there)
    left = itertools.cycle(COLOURS[len(lines) % len(COLOURS) :] + COLOURS[: len(lines) % len(COLOURS)])
    published_lines = dict(zip(published, zip(left, itertools.cycle(_DASHES), strict=False), strict=False))
    most = 4 if len(panels) >= _MIN_FOR_FOUR_COLUMNS else 3
    columns = _COLUMNS.get(len(panels), min(most, len(panels)))
    rows = -(-len(panels) // columns)
    width, height = _INCHES[columns]
    named = []
    if len(panels) == 1 and len(lines) + len(published) <= _MOST_NAMES:
        named = _at_their_ends(panels[0], ends[0], seen[0], lines, published_lines)
    handles = [
        handle
        for handle in _legend_handles(panels, lines, published_lines)
        if handle.get_label() not in {name for name, *_ in named}
    ]
    legend_columns = min(columns, 2)
    legend_rows = -(-len(handles) // legend_columns)
    size = width, rows * height + 0.17 * legend_rows + 0.15
    with matplotlib.rc_context(STYLE):
        figure = NotebookFigure(figsize=size, layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False)
        for ax, panel, limits, behind in zip(grid.flat, panels, ends, seen, strict=False):
            drawn = [(curve, published_lines[label]) for label, curve in behind]
            _draw_panel(ax, panel, limits, drawn, lines)
        for ax in grid.flat[len(panels) :]:
            ax.set_visible(False)
        for ax in grid[:, 0]:
            ax.set_ylabel(y_label)
        for ax in grid.flat[max(0, len(panels) - columns) : len(panels)]:  # panels with none below
            ax.set_xlabel(x_label)
        beside = _write_names(grid[0, 0], named)
        legend = figure.legend(handles=handles, loc="outside lower center", ncols=legend_columns)
        # The figure is widened for long entries, which would be cut off otherwise.
        needed = legend.get_window_extent().width / figure.dpi + 2 * _LEGEND_MARGIN_INCHES
        figure.set_figwidth(max(width + beside / figure.dpi, needed))
    return figure


def save(figure: Figure, path: pathlib.Path) -> list[pathlib.Path]:
    """Writes a figure in the format of the path's suffix, or as PNG and SVG if it has none.

    Returns:
        The paths of the written files.

    Raises:
        ValueError: matplotlib does not support this format.
        OSError: A file cannot be written.
    """
    known = figure.canvas.get_supported_filetypes()
    suffixes = [path.suffix] if path.suffix else [".png", ".svg"]
    if suffixes[0].removeprefix(".") not in known:
        raise ValueError(
            f"The `path` of a figure must have the suffix {', '.join(sorted(known))} or none (png and svg), "
            f"got '{path}'."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    files = [path.with_name(path.name.removesuffix(path.suffix) + suffix) for suffix in suffixes]
    with matplotlib.rc_context(STYLE):
        for file in files:
            # Without a date, equal figures give equal files.
            date = {".svg": "Date", ".pdf": "CreationDate"}.get(file.suffix)
            metadata = {date: None} if date else None
            with writing.explain(file):
                figure.savefig(file, dpi=_DOTS_PER_INCH, metadata=metadata)
    return files


def _draw_panel(
    ax: Axes,
    panel: Panel,
    limits: tuple[float, float],
    published: Sequence[tuple[run_curves.Curve, _Line]],
    lines: dict[str, _Line],
) -> None:
    low, high = _vertical_limits(panel)
    for curve, (colour, style) in published:
        marker = _marker(curve, 1)
        ax.plot(*curve, color=colour, linestyle=style, marker=marker, linewidth=1.0, zorder=1)
    if panel.random is not None:
        ax.axhline(panel.random, color=_GREY, linestyle=":", linewidth=0.8, zorder=1)
    for group in panel.groups:
        colour, style = lines[group.label]
        if 1 < len(group.runs) <= MAX_RUNS_DRAWN:
            for run in group.runs:
                thin, marker = curves.thin(run), _marker(run, 1)
                drawing = {"color": colour, "linestyle": style, "marker": marker, "alpha": 0.45}
                ax.plot(*thin, linewidth=0.5, zorder=2, **drawing)
        steps = group.mean.x
        if group.interval is not None:
            ax.fill_between(steps, *group.interval, color=colour, alpha=0.2, linewidth=0, zorder=2)
        marker = _marker(group.mean, _MAX_MARKED_POINTS)
        leaves = group.mean.values.min() < low or group.mean.values.max() > high
        # At the edge of the axes a line is as wide as elsewhere.
        ax.plot(*group.mean, color=colour, linestyle=style, marker=marker, clip_on=leaves, zorder=3)
    ax.set_title(panel.title)
    if limits[1] > limits[0]:
        ax.set_xlim(*limits)
    ax.set_ylim(low, high)
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))  # 500, 50k, 2.5M
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))


def _marker(curve: run_curves.Curve, most: int) -> str | None:
    """Returns the marker of a curve's points, or None if there are more than `most`."""
    return "o" if len(curve.x) <= most else None


def _horizontal_limits(panels: Sequence[Panel]) -> list[tuple[float, float]]:
    """Returns the limits of each panel; they end together where that leaves no panel more than half empty."""
    own = list(map(_own_limits, panels))
    longest = max(last for _, last in own)
    return [(first, longest if 2.0 * last >= longest else last) for first, last in own]


def _own_limits(panel: Panel) -> tuple[float, float]:
    runs = [run.x for group in panel.groups for run in group.runs]
    first, last = float(min(steps[0] for steps in runs)), float(max(steps[-1] for steps in runs))
    wanted = [step for _, curve in panel.published for step in curve.x[:_MIN_PUBLISHED_POINTS]]
    last = max([last, *(float(step) for step in wanted if step <= 2.0 * last)])
    return 0.0 if first <= 0.1 * last or len(set(np.concatenate(runs))) == 1 else first, last


def _vertical_limits(panel: Panel) -> tuple[float, float]:
    """Returns the given limits, or else the range of the runs; published scores may be far outside it."""
    if panel.limits is not None:
        return panel.limits
    shown = [curves.thin(run).values for group in panel.groups for run in group.runs]
    shown += [np.concatenate(group.interval) for group in panel.groups if group.interval is not None]
    values = np.concatenate(shown if panel.random is None else [*shown, [panel.random]])
    low, high = float(values.min()), float(values.max())
    margin = 0.05 * (high - low) or max(0.05 * abs(high), 0.5)
    # If no score is negative, the axis starts at zero.
    return 0.0 if low >= 0.0 else low - margin, high + margin


def _seen(panel: Panel, limits: tuple[float, float]) -> list[tuple[str, run_curves.Curve]]:
    """Returns the published curves that cross the visible area of the axes."""
    first, last = limits
    low, high = _vertical_limits(panel)
    found = []
    for label, curve in panel.published:
        start, end = max(first, curve.x[0]), min(last, curve.x[-1])
        if start > end:
            continue
        inside = curve.values[(curve.x > start) & (curve.x < end)]
        heights = [*np.interp([start, end], *curve), *inside]
        if min(heights) <= high and max(heights) >= low:  # the curve is a line between its points
            found.append((label, curve))
    return found


def _legend_handles(
    panels: Sequence[Panel], lines: dict[str, _Line], published_lines: dict[str, _Line]
) -> list[Artist]:
    handles: list[Artist] = []
    for label, (colour, style) in lines.items():
        groups = [group for panel in panels for group in panel.groups if group.label == label]
        if not groups:
            continue
        text = _name(label, groups)
        handles.append(Line2D([], [], color=colour, linestyle=style, linewidth=1.5, label=text))
    behind = [(label, line, 1.0) for label, line in published_lines.items()]
    if any(panel.random is not None and _holds(_vertical_limits(panel), panel.random) for panel in panels):
        behind.append(("Random actions", (_GREY, ":"), 0.8))
    for label, (colour, style), linewidth in behind:
        handles.append(Line2D([], [], color=colour, linestyle=style, linewidth=linewidth, label=label))
    band = describe_band([group for panel in panels for group in panel.groups])
    if band is not None:
        handles.append(Patch(color=_GREY, alpha=0.3, linewidth=0, label=f"Band: {band}"))
    return handles


def _name(label: str, groups: Sequence[Group]) -> str:
    return f"{label}: {describe_seeds(groups)}"


class _Named(NamedTuple):
    """A name at the end of a curve."""

    name: str
    colour: str
    x: float
    y: float


def _at_their_ends(
    panel: Panel,
    limits: tuple[float, float],
    published: Sequence[tuple[str, run_curves.Curve]],
    lines: Mapping[str, _Line],
    published_lines: Mapping[str, _Line],
) -> list[_Named]:
    """Returns the names of a panel's curves, each where the visible part of its curve ends, lowest first."""
    low, high = _vertical_limits(panel)
    every = [(_name(group.label, [group]), group.mean, lines[group.label][0]) for group in panel.groups]
    every += [(label, curve, published_lines[label][0]) for label, curve in published]
    found = []
    for name, curve, colour in every:
        x = min(float(curve.x[-1]), limits[1])
        y = float(np.interp(x, *curve))
        found.append(_Named(name, colour, x, min(max(y, low), high)))
    return sorted(found, key=lambda named: named.y)


def _write_names(ax: Axes, names: Sequence[_Named]) -> float:
    """Writes names to the right of the axes, as near to the ends of their curves as they fit.

    Returns:
        The width of the longest name, in dots.
    """
    (low, high), right = ax.get_ylim(), ax.get_xlim()[1]
    heights = [(named.y - low) / (high - low) for named in names]
    for index in range(1, len(names)):
        heights[index] = max(heights[index], heights[index - 1] + _NAME_HEIGHT)
    most = 1.0
    for index in reversed(range(len(names))):
        heights[index] = min(heights[index], most)
        most = heights[index] - _NAME_HEIGHT
    widest = 0.0
    for named, height in zip(names, heights, strict=True):
        written = ax.annotate(
            named.name,
            (named.x, named.y),
            (1.04, height),
            textcoords="axes fraction",
            color=named.colour,
            fontsize=STYLE["legend.fontsize"],
            verticalalignment="center",
            arrowprops={
                "arrowstyle": "-",
                "color": named.colour,
                "linewidth": 0.5,
                "alpha": 1.0 if named.x == right else 0.5,
                "shrinkA": 0,
                "shrinkB": 0,
            },
        )
        widest = max(widest, Text.get_window_extent(written).width)
    return widest


def _holds(limits: tuple[float, float], value: float) -> bool:
    return limits[0] <= value <= limits[1]
