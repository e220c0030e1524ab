"""Learning curves drawn for a paper: a panel for each environment, readable at the size of a column."""

import itertools
import pathlib
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib import axes as mpl_axes
from matplotlib import figure as mpl_figure
from matplotlib import lines as mpl_lines
from matplotlib import ticker as mpl_ticker

from minerva_acme.plotting import curves
from minerva_acme.plotting.panels import Panel, describe_seeds

# Okabe and Ito (2008), told apart by the colour-blind too; yellow, pale on paper, is left out.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# Dots alone are random actions.
_PUBLISHED_STYLES = ((0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (10, 2)), (0, (5, 1, 1, 1, 1, 1)))
_GREY = "0.5"
_MAX_RUNS_DRAWN = 5
_MAX_MARKED_POINTS = 15
_MIN_PUBLISHED_POINTS = 3
_LEGEND_MARGIN_INCHES = 0.05
_INCHES = {1: (3.5, 2.5), 2: (5.5, 2.3)}  # of the panels, by columns; the legend comes to that
_WIDE_INCHES_PER_PANEL = (2.25, 1.75)
_MAX_COLUMNS = 3
_DOTS_PER_INCH = 300
_STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    # The same picture gives the same file.
    "svg.hashsalt": "minerva",
    "pdf.fonttype": 42,
}


def draw(panels: Sequence[Panel], *, y_label: str) -> mpl_figure.Figure:
    """Draws panels in a grid, with one legend beneath.

    A label has the same colour in every panel. The horizontal axis ends where the last run does, though
    what was published goes on; it goes on itself, up to twice as far, where otherwise fewer than three
    points of that would be seen.

    Raises:
        ValueError: there are no panels.
    """
    if not panels:
        raise ValueError("`panels` must hold at least one panel, got none. Give runs with evaluations.")
    labels = list(dict.fromkeys(group.label for panel in panels for group in panel.groups))
    colours = dict(zip(labels, itertools.cycle(_COLOURS), strict=False))
    published = list(dict.fromkeys(label for panel in panels for label, _ in panel.published))
    styles = dict(zip(published, itertools.cycle(_PUBLISHED_STYLES), strict=False))
    columns = min(_MAX_COLUMNS, len(panels)) if len(panels) != 4 else 2
    rows = -(-len(panels) // columns)
    width, height = _INCHES.get(columns, (columns * _WIDE_INCHES_PER_PANEL[0], _WIDE_INCHES_PER_PANEL[1]))
    handles = _legend_handles(panels, colours, styles)
    legend_columns = 1 if columns == 1 else 2
    legend_rows = -(-len(handles) // legend_columns)
    with matplotlib.rc_context(_STYLE):
        figure = mpl_figure.Figure(
            figsize=(width, rows * height + 0.17 * legend_rows + 0.15), layout="constrained"
        )
        grid = figure.subplots(rows, columns, squeeze=False)
        for ax, panel in itertools.zip_longest(grid.flat, panels):
            if panel is None:
                ax.set_visible(False)
            else:
                _draw_panel(ax, panel, colours, styles)
        for ax in grid[:, 0]:
            ax.set_ylabel(y_label)
        for ax in grid.flat[max(0, len(panels) - columns) : len(panels)]:  # with nothing below
            ax.set_xlabel("Environment steps")
        legend = figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=legend_columns,
            frameon=False,
            handlelength=2.2,
        )
        # A long entry widens the figure, or it would be cut off.
        needed = legend.get_window_extent().width / figure.dpi + 2 * _LEGEND_MARGIN_INCHES
        figure.set_figwidth(max(width, needed))
    return figure


def save(figure: mpl_figure.Figure, path: pathlib.Path) -> list[pathlib.Path]:
    """Writes a figure: as the path's suffix says, or as PNG and SVG if it has none.

    Returns:
        The files written.

    Raises:
        ValueError: matplotlib writes no such files.
    """
    known = figure.canvas.get_supported_filetypes()
    suffixes = [path.suffix] if path.suffix else [".png", ".svg"]
    if suffixes[0].removeprefix(".") not in known:
        raise ValueError(
            f"`out` must end in {', '.join(sorted(known))} or in nothing (png and svg), got '{path}'."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context(_STYLE):
        for suffix in suffixes:
            file = path.with_name(path.name.removesuffix(path.suffix) + suffix)
            metadata = {"Date": None} if suffix == ".svg" else None
            figure.savefig(file, dpi=_DOTS_PER_INCH, metadata=metadata)
            written.append(file)
    return written


def format_steps(steps: float, _position: object = None) -> str:
    """Writes a number of steps as a tick: 0, 500, 50k, 2.5M."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if abs(steps) >= size:
            return f"{steps / size:.4g}{unit}"
    return f"{steps:.4g}"


def _draw_panel(
    ax: mpl_axes.Axes,
    panel: Panel,
    colours: dict[str, str],
    styles: dict[str, tuple[int, tuple[float, ...]]],
) -> None:
    for label, curve in panel.published:
        ax.plot(*curve, color=_GREY, linestyle=styles[label], linewidth=1.0, zorder=1)
    if panel.random is not None:
        ax.axhline(panel.random, color=_GREY, linestyle=":", linewidth=0.8, zorder=1)
    for group in panel.groups:
        colour = colours[group.label]
        if 1 < len(group.runs) <= _MAX_RUNS_DRAWN:
            for run in group.runs:
                ax.plot(*curves.thin(run), color=colour, linewidth=0.5, alpha=0.45, zorder=2)
        if group.interval is not None:
            ax.fill_between(
                group.mean.env_steps, *group.interval, color=colour, alpha=0.2, linewidth=0, zorder=2
            )
        marked = len(group.mean.env_steps) <= _MAX_MARKED_POINTS
        ax.plot(
            *group.mean,
            color=colour,
            linewidth=1.5,
            marker="o" if marked else None,
            markersize=2.5,
            clip_on=False,
            zorder=3,
        )
    ax.set_title(panel.title)
    first, last = _horizontal_limits(panel)
    if last > first:
        ax.set_xlim(first, last)
    if panel.limits is not None:
        ax.set_ylim(*panel.limits)
    else:
        # What was published may go far beyond the runs' steps and scores.
        _set_vertical_limits(ax, panel)
    ax.xaxis.set_major_formatter(mpl_ticker.FuncFormatter(format_steps))
    ax.xaxis.set_major_locator(mpl_ticker.MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    ax.yaxis.set_major_locator(mpl_ticker.MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    ax.grid(True, color="0.92", linewidth=0.5)
    ax.set_axisbelow(True)


def _horizontal_limits(panel: Panel) -> tuple[float, float]:
    runs = [run.env_steps for group in panel.groups for run in group.runs]
    first, last = float(min(steps[0] for steps in runs)), float(max(steps[-1] for steps in runs))
    for _, curve in panel.published:
        wanted = float(curve.env_steps[:_MIN_PUBLISHED_POINTS][-1])
        if wanted <= 2.0 * last:
            last = max(last, wanted)
    return 0.0 if first < 0.1 * last else first, last


def _set_vertical_limits(ax: mpl_axes.Axes, panel: Panel) -> None:
    shown = [curves.thin(run).values for group in panel.groups for run in group.runs]
    shown += [np.concatenate(group.interval) for group in panel.groups if group.interval is not None]
    if panel.random is not None:
        shown.append(np.array([panel.random]))
    values = np.concatenate(shown)
    low, high = float(values.min()), float(values.max())
    margin = 0.05 * (high - low) or max(0.05 * abs(high), 0.5)
    # A score that is never negative starts from zero.
    ax.set_ylim(0.0 if low >= 0.0 else low - margin, high + margin)


def _legend_handles(
    panels: Sequence[Panel],
    colours: dict[str, str],
    styles: dict[str, tuple[int, tuple[float, ...]]],
) -> list[mpl_lines.Line2D]:
    handles = []
    for label, colour in colours.items():
        groups = [group for panel in panels for group in panel.groups if group.label == label]
        text = f"{label}: {describe_seeds(groups)}"
        handles.append(mpl_lines.Line2D([], [], color=colour, linewidth=1.5, label=text))
    for label, style in styles.items():
        handles.append(mpl_lines.Line2D([], [], color=_GREY, linestyle=style, linewidth=1.0, label=label))
    if any(panel.random is not None for panel in panels):
        handles.append(
            mpl_lines.Line2D([], [], color=_GREY, linestyle=":", linewidth=0.8, label="Random actions")
        )
    return handles
