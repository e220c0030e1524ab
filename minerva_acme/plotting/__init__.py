"""Learning curves of runs, with intervals over seeds and published curves in the background.

`draw_runs("runs")` draws runs from their folders, `draw_curves` draws curves of your own. Both return a
matplotlib figure, which a notebook shows, and leave pyplot alone.
"""

from typing import TYPE_CHECKING

from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme.plotting.curves import PublishedCurve, at_common_steps, published_curves, thin
    from minerva_acme.plotting.figure import NotebookFigure, draw_curves
    from minerva_acme.plotting.front import Front, hypervolume, make_fronts
    from minerva_acme.plotting.panels import (
        FRAMES,
        Group,
        Panel,
        describe_band,
        describe_seeds,
        make_caption,
        make_group,
        make_title,
    )
    from minerva_acme.plotting.report import Report, Table, check_against, find_range, make_report
    from minerva_acme.plotting.run_figures import draw_runs
    from minerva_acme.plotting.statistics import (
        NUM_RESAMPLES,
        Improvement,
        Interval,
        Profile,
        bootstrap_interval,
        interquartile_mean,
        nominal_coverage,
        performance_profile,
        probability_of_improvement,
    )
    from minerva_acme.runs.run_curves import STEPS, Curve, list_metrics, make_curve, read_curve

__all__ = [
    "Curve",
    "FRAMES",
    "Front",
    "Group",
    "Improvement",
    "Interval",
    "NUM_RESAMPLES",
    "NotebookFigure",
    "Panel",
    "Profile",
    "PublishedCurve",
    "Report",
    "STEPS",
    "Table",
    "at_common_steps",
    "bootstrap_interval",
    "check_against",
    "describe_band",
    "describe_seeds",
    "draw_curves",
    "draw_runs",
    "find_range",
    "hypervolume",
    "interquartile_mean",
    "list_metrics",
    "make_caption",
    "make_curve",
    "make_fronts",
    "make_group",
    "make_report",
    "make_title",
    "nominal_coverage",
    "performance_profile",
    "probability_of_improvement",
    "published_curves",
    "read_curve",
    "thin",
]

# matplotlib and torch are imported when a name that needs them is used.
__getattr__, __dir__ = lazy.attach(__name__, __file__)
