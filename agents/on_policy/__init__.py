"""What PPO and V-MPO are both made of: acting, rollouts made ready, and the builder's common part."""

from typing import TYPE_CHECKING

from minerva_acme import _lazy

if TYPE_CHECKING:
    from minerva_acme.agents.on_policy.acting import BehaviourExtras, BehaviourPolicy, GreedyPolicy
    from minerva_acme.agents.on_policy.actions import (
        ClippedActions,
        DiscreteActions,
        RawActions,
        SquashedActions,
    )
    from minerva_acme.agents.on_policy.annealing import anneal_learning_rate
    from minerva_acme.agents.on_policy.batch import RolloutBatch, RolloutEvaluator
    from minerva_acme.agents.on_policy.builder import OnPolicyBuilder
    from minerva_acme.agents.on_policy.config import OnPolicyConfig

__all__ = [
    "BehaviourExtras",
    "BehaviourPolicy",
    "ClippedActions",
    "DiscreteActions",
    "GreedyPolicy",
    "OnPolicyBuilder",
    "OnPolicyConfig",
    "RawActions",
    "RolloutBatch",
    "RolloutEvaluator",
    "SquashedActions",
    "anneal_learning_rate",
]

# A config needs no torch; what does is imported when it is used.
__getattr__ = _lazy.attach(
    __name__,
    {
        "acting": ["BehaviourExtras", "BehaviourPolicy", "GreedyPolicy"],
        "actions": ["ClippedActions", "DiscreteActions", "RawActions", "SquashedActions"],
        "annealing": ["anneal_learning_rate"],
        "batch": ["RolloutBatch", "RolloutEvaluator"],
        "builder": ["OnPolicyBuilder"],
        "config": ["OnPolicyConfig"],
    },
)
