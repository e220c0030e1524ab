"""Maximum a posteriori policy optimisation (MPO) with Retrace targets."""

from typing import TYPE_CHECKING

from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme.agents.acting import BehaviourExtras, ModulePolicy
    from minerva_acme.agents.mpo.builder import MPOBuilder
    from minerva_acme.agents.mpo.config import PRESETS, MPOConfig
    from minerva_acme.agents.mpo.improvement import Improvement, PolicyLoss, States
    from minerva_acme.agents.mpo.losses import CriticLoss, Estimates, MPOLosses, MPOModules
    from minerva_acme.agents.mpo.networks import MPONetworks, make_networks
    from minerva_acme.agents.mpo.targets import CriticTarget

__all__ = [
    "BehaviourExtras",
    "CriticLoss",
    "CriticTarget",
    "Estimates",
    "Improvement",
    "MPOBuilder",
    "MPOConfig",
    "MPOLosses",
    "MPOModules",
    "MPONetworks",
    "ModulePolicy",
    "PRESETS",
    "PolicyLoss",
    "States",
    "make_networks",
]

__getattr__, __dir__ = lazy.attach(__name__, __file__)
