"""What learners have in common."""

from minerva_acme.learners.batches import next_batch
from minerva_acme.learners.finite import WAY_OUT, NonFinite, read, require_finite
from minerva_acme.learners.module_learner import ModuleLearner
from minerva_acme.learners.optimizers import make_optimizer
from minerva_acme.learners.updates import Group, Metrics, Updates

__all__ = [
    "Group",
    "Metrics",
    "ModuleLearner",
    "NonFinite",
    "Updates",
    "WAY_OUT",
    "make_optimizer",
    "next_batch",
    "read",
    "require_finite",
]
