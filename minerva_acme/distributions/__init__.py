"""What policies are over actions. They need torch alone."""

from minerva_acme.distributions.categorical import Categorical
from minerva_acme.distributions.gaussian import DiagonalGaussian
from minerva_acme.distributions.squashed import TanhSquash

__all__ = ["Categorical", "DiagonalGaussian", "TanhSquash"]
