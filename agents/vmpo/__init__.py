"""On-policy maximum a posteriori policy optimisation (V-MPO)."""

from typing import TYPE_CHECKING

from minerva_acme import _lazy

if TYPE_CHECKING:
    from minerva_acme.agents.vmpo.builder import VMPOBuilder
    from minerva_acme.agents.vmpo.config import PRESETS, VMPOConfig
    from minerva_acme.agents.vmpo.learner import VMPODuals, VMPOLearner

__all__ = ["PRESETS", "VMPOBuilder", "VMPOConfig", "VMPODuals", "VMPOLearner"]

# A config needs no torch; what does is imported when it is used.
__getattr__ = _lazy.attach(
    __name__,
    {
        "builder": ["VMPOBuilder"],
        "config": ["PRESETS", "VMPOConfig"],
        "learner": ["VMPODuals", "VMPOLearner"],
    },
)
