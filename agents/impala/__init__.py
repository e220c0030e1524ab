"""Importance weighted actor-learner architecture (IMPALA)."""

from typing import TYPE_CHECKING

from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme.agents.impala.builder import IMPALABuilder
    from minerva_acme.agents.impala.config import PRESETS, IMPALAConfig
    from minerva_acme.agents.impala.learner import IMPALALearner

__all__ = ["IMPALABuilder", "IMPALAConfig", "IMPALALearner", "PRESETS"]

__getattr__, __dir__ = lazy.attach(__name__, __file__)
