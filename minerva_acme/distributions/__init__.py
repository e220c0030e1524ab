"""Distributions over actions, as policies use them. They need only torch, and their limits not even that."""

from typing import TYPE_CHECKING

from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme.distributions.categorical import Categorical
    from minerva_acme.distributions.distribution import Distribution, Points
    from minerva_acme.distributions.gaussian import DiagonalGaussian
    from minerva_acme.distributions.hybrid import Hybrid
    from minerva_acme.distributions.multi_categorical import MultiCategorical
    from minerva_acme.distributions.squashed import SquashedGaussian, TanhSquash

__all__ = [
    "Categorical",
    "DiagonalGaussian",
    "Distribution",
    "Hybrid",
    "MultiCategorical",
    "Points",
    "SquashedGaussian",
    "TanhSquash",
]

__getattr__, __dir__ = lazy.attach(__name__, __file__)
