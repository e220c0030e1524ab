"""Learning curves of runs, with intervals over seeds and published curves behind them."""

from minerva_acme.plotting.curves import (
    Curve,
    PublishedCurve,
    at_common_steps,
    published_curves,
    read_curve,
    thin,
)
from minerva_acme.plotting.panels import Group, Panel, describe_seeds, make_group
from minerva_acme.plotting.statistics import (
    Interval,
    bootstrap_interval,
    interquartile_mean,
    nominal_coverage,
)

__all__ = [
    "Curve",
    "Group",
    "Interval",
    "Panel",
    "PublishedCurve",
    "at_common_steps",
    "bootstrap_interval",
    "describe_seeds",
    "interquartile_mean",
    "make_group",
    "nominal_coverage",
    "published_curves",
    "read_curve",
    "thin",
]
