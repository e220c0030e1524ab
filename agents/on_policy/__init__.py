"""The common parts of PPO and V-MPO: rollouts prepared for learning, and the builder."""

from typing import TYPE_CHECKING

from minerva_acme import lazy

if TYPE_CHECKING:
    from minerva_acme.agents.acting import BehaviourExtras, ModulePolicy
    from minerva_acme.agents.actions import RawActions, SquashedActions
    from minerva_acme.agents.on_policy.batch import RolloutBatch, RolloutPreparer
    from minerva_acme.agents.on_policy.builder import OnPolicyBuilder
    from minerva_acme.agents.on_policy.config import OnPolicyConfig

__all__ = [
    "BehaviourExtras",
    "ModulePolicy",
    "OnPolicyBuilder",
    "OnPolicyConfig",
    "RawActions",
    "RolloutBatch",
    "RolloutPreparer",
    "SquashedActions",
]

__getattr__, __dir__ = lazy.attach(__name__, __file__)
