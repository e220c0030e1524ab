"""Maximum a posteriori policy optimisation (MPO) with Retrace targets."""

from typing import TYPE_CHECKING

from minerva_acme import _lazy

if TYPE_CHECKING:
    from minerva_acme.agents.acting import BehaviourExtras, ModulePolicy
    from minerva_acme.agents.mpo.builder import MPOBuilder
    from minerva_acme.agents.mpo.config import PRESETS, MPOConfig
    from minerva_acme.agents.mpo.learner import MPOLearner
    from minerva_acme.agents.mpo.networks import MPONetworks, make_networks
    from minerva_acme.agents.mpo.targets import CriticTarget

__all__ = [
    "BehaviourExtras",
    "CriticTarget",
    "MPOBuilder",
    "MPOConfig",
    "MPOLearner",
    "MPONetworks",
    "ModulePolicy",
    "PRESETS",
    "make_networks",
]

__getattr__ = _lazy.attach(__name__, __file__)
