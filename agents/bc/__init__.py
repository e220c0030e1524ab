"""Behaviour cloning (BC): a policy that acts as recorded data does."""

from typing import TYPE_CHECKING

from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme.agents.bc.builder import BCBuilder
    from minerva_acme.agents.bc.config import PRESETS, BCConfig
    from minerva_acme.agents.bc.learner import BCLosses
    from minerva_acme.agents.bc.networks import BCNetworks

__all__ = ["BCBuilder", "BCConfig", "BCLosses", "BCNetworks", "PRESETS"]

__getattr__, __dir__ = lazy.attach(__name__, __file__)
