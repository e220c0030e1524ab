"""Learning curves of runs, with intervals over seeds and published curves behind them."""

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
)
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
    "NUM_RESAMPLES",
    "STEPS",
    "Curve",
    "Group",
    "Improvement",
    "Interval",
    "Panel",
    "Profile",
    "PublishedCurve",
    "at_common_steps",
    "bootstrap_interval",
    "describe_band",
    "describe_seeds",
    "interquartile_mean",
    "list_metrics",
    "make_caption",
    "make_group",
    "nominal_coverage",
    "performance_profile",
    "probability_of_improvement",
    "published_curves",
    "read_curve",
    "thin",
]
