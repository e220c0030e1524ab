"""Distributed distributional deterministic policy gradients (D4PG), in one process."""

from typing import TYPE_CHECKING

from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme.agents.d4pg.builder import D4PGBuilder
    from minerva_acme.agents.d4pg.config import PRESETS, D4PGConfig
    from minerva_acme.agents.d4pg.learner import D4PGLosses
    from minerva_acme.agents.d4pg.networks import D4PGNetworks

__all__ = ["D4PGBuilder", "D4PGConfig", "D4PGLosses", "D4PGNetworks", "PRESETS"]

__getattr__, __dir__ = lazy.attach(__name__, __file__)
