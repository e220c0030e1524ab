"""Critic-regularised regression (CRR)."""

from typing import TYPE_CHECKING

from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme.agents.crr.builder import CRRBuilder
    from minerva_acme.agents.crr.config import PRESETS, CRRConfig
    from minerva_acme.agents.crr.learner import CRRLosses
    from minerva_acme.agents.crr.networks import CRRNetworks

__all__ = ["CRRBuilder", "CRRConfig", "CRRLosses", "CRRNetworks", "PRESETS"]

__getattr__, __dir__ = lazy.attach(__name__, __file__)
