"""Twin delayed deep deterministic policy gradient (TD3)."""

from typing import TYPE_CHECKING

from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme.agents.td3.builder import TD3Builder
    from minerva_acme.agents.td3.config import PRESETS, TD3Config
    from minerva_acme.agents.td3.learner import TD3Losses
    from minerva_acme.agents.td3.networks import TD3Networks

__all__ = ["PRESETS", "TD3Builder", "TD3Config", "TD3Losses", "TD3Networks"]

__getattr__, __dir__ = lazy.attach(__name__, __file__)
