"""Wasserstein policy optimisation (WPO)."""

from typing import TYPE_CHECKING

from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme.agents.wpo.builder import WPOBuilder
    from minerva_acme.agents.wpo.config import PRESETS, WPOConfig
    from minerva_acme.agents.wpo.learner import WPOLosses
    from minerva_acme.agents.wpo.networks import WPONetworks

__all__ = ["PRESETS", "WPOBuilder", "WPOConfig", "WPOLosses", "WPONetworks"]

__getattr__, __dir__ = lazy.attach(__name__, __file__)
