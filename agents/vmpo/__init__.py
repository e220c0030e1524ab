"""On-policy maximum a posteriori policy optimisation (V-MPO)."""

from minerva_acme.agents.vmpo.builder import VMPOBuilder
from minerva_acme.agents.vmpo.config import PRESETS, VMPOConfig
from minerva_acme.agents.vmpo.learner import VMPODuals, VMPOLearner

__all__ = ["PRESETS", "VMPOBuilder", "VMPOConfig", "VMPODuals", "VMPOLearner"]
