"""On-policy maximum a posteriori policy optimisation (V-MPO)."""

from typing import TYPE_CHECKING

from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme.agents.vmpo.builder import VMPOBuilder
    from minerva_acme.agents.vmpo.config import PRESETS, VMPOConfig
    from minerva_acme.agents.vmpo.learner import VMPOLearner

__all__ = ["PRESETS", "VMPOBuilder", "VMPOConfig", "VMPOLearner"]

__getattr__, __dir__ = lazy.attach(__name__, __file__)
