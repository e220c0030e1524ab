"""Implicit Q-learning (IQL)."""

from typing import TYPE_CHECKING

from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme.agents.iql.builder import IQLBuilder
    from minerva_acme.agents.iql.config import PRESETS, IQLConfig
    from minerva_acme.agents.iql.learner import IQLLosses
    from minerva_acme.agents.iql.networks import IQLNetworks

__all__ = ["IQLBuilder", "IQLConfig", "IQLLosses", "IQLNetworks", "PRESETS"]

__getattr__, __dir__ = lazy.attach(__name__, __file__)
