"""Recurrent replay distributed DQN (R2D2)."""

from typing import TYPE_CHECKING

from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme.agents.r2d2.builder import R2D2Builder
    from minerva_acme.agents.r2d2.config import PRESETS, R2D2Config
    from minerva_acme.agents.r2d2.learner import R2D2Losses
    from minerva_acme.agents.r2d2.networks import R2D2Networks

__all__ = ["PRESETS", "R2D2Builder", "R2D2Config", "R2D2Losses", "R2D2Networks"]

__getattr__, __dir__ = lazy.attach(__name__, __file__)
