"""Soft actor-critic (SAC) with a learned temperature."""

from typing import TYPE_CHECKING

from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme.agents.sac.builder import SACBuilder
    from minerva_acme.agents.sac.config import PRESETS, SACConfig
    from minerva_acme.agents.sac.learner import SACLosses
    from minerva_acme.agents.sac.networks import SACNetworks

__all__ = ["PRESETS", "SACBuilder", "SACConfig", "SACLosses", "SACNetworks"]

__getattr__, __dir__ = lazy.attach(__name__, __file__)
