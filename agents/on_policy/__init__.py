"""The common parts of PPO, V-MPO and IMPALA: rollouts prepared for learning, the learner and the builder."""

from typing import TYPE_CHECKING

from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme.agents.acting import BehaviourExtras, ModulePolicy
    from minerva_acme.agents.actions import RawActions, SquashedActions
    from minerva_acme.agents.on_policy.batch import RolloutBatch, RolloutPreparer
    from minerva_acme.agents.on_policy.builder import OnPolicyBuilder
    from minerva_acme.agents.on_policy.config import OnPolicyConfig
    from minerva_acme.agents.on_policy.learner import RolloutLearner

__all__ = [
    "BehaviourExtras",
    "ModulePolicy",
    "OnPolicyBuilder",
    "OnPolicyConfig",
    "RawActions",
    "RolloutBatch",
    "RolloutLearner",
    "RolloutPreparer",
    "SquashedActions",
]

__getattr__, __dir__ = lazy.attach(__name__, __file__)
