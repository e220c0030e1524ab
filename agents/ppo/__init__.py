"""Proximal policy optimisation (PPO)."""

from typing import TYPE_CHECKING

from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme.agents.ppo.builder import PPOBuilder
    from minerva_acme.agents.ppo.config import PRESETS, PPOConfig
    from minerva_acme.agents.ppo.learner import PPOLearner

__all__ = ["PPOBuilder", "PPOConfig", "PPOLearner", "PRESETS"]

__getattr__, __dir__ = lazy.attach(__name__, __file__)
