"""What a training came to, for people: learning curves with honest intervals, and films of episodes."""

from minerva_acme.showing.curves import (
    Curve,
    Curves,
    PublishedCurve,
    at_common_steps,
    published_curves,
    read_curve,
    thin,
)
from minerva_acme.showing.statistics import (
    Interval,
    bootstrap_interval,
    interquartile_mean,
    nominal_coverage,
)

__all__ = [
    "Curve",
    "Curves",
    "Interval",
    "PublishedCurve",
    "at_common_steps",
    "bootstrap_interval",
    "interquartile_mean",
    "nominal_coverage",
    "published_curves",
    "read_curve",
    "thin",
]
