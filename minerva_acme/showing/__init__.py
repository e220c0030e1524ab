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
from minerva_acme.showing.filming import Filmer, make_filmer
from minerva_acme.showing.panels import Group, Panel, describe_seeds, make_group
from minerva_acme.showing.statistics import (
    Interval,
    bootstrap_interval,
    interquartile_mean,
    nominal_coverage,
)

__all__ = [
    "Curve",
    "Curves",
    "Filmer",
    "Group",
    "Interval",
    "Panel",
    "PublishedCurve",
    "at_common_steps",
    "bootstrap_interval",
    "describe_seeds",
    "interquartile_mean",
    "make_filmer",
    "make_group",
    "nominal_coverage",
    "published_curves",
    "read_curve",
    "thin",
]
