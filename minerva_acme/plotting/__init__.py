"""Learning curves of runs, with intervals over seeds and published curves in the background."""

from minerva_acme.plotting.curves import (
    STEPS,
    Curve,
    PublishedCurve,
    at_common_steps,
    list_metrics,
    published_curves,
    read_curve,
    thin,
)
from minerva_acme.plotting.panels import (
    Group,
    Panel,
    describe_band,
    describe_seeds,
    make_caption,
    make_group,
    make_title,
)
from minerva_acme.plotting.report import Report, Table, find_range, make_report
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

__all__ = [
    "Curve",
    "Group",
    "Improvement",
    "Interval",
    "NUM_RESAMPLES",
    "Panel",
    "Profile",
    "PublishedCurve",
    "Report",
    "STEPS",
    "Table",
    "at_common_steps",
    "bootstrap_interval",
    "describe_band",
    "describe_seeds",
    "find_range",
    "interquartile_mean",
    "list_metrics",
    "make_caption",
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
