"""Proximal policy optimisation (PPO)."""

from minerva_acme.agents.ppo.builder import PPOBuilder
from minerva_acme.agents.ppo.config import PRESETS, PPOConfig
from minerva_acme.agents.ppo.learner import PPOLearner

__all__ = ["PPOBuilder", "PPOConfig", "PPOLearner", "PRESETS"]
