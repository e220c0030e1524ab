"""The parts that learners have in common."""

from minerva_acme.learners.averages import Averages, average_of
from minerva_acme.learners.batches import at, checked_fields, next_batch, next_sample, where_unmasked
from minerva_acme.learners.finite import (
    LARGEST,
    WAY_OUT,
    NonFinite,
    is_read_at_once,
    read,
    require_finite,
)
from minerva_acme.learners.loss_learner import (
    Batch,
    Estimated,
    EstimateFunction,
    Loss,
    LossFunction,
    LossLearner,
)
from minerva_acme.learners.module_learner import ModuleLearner
from minerva_acme.learners.optimizers import (
    LinearDecay,
    OptimizerFactory,
    ParameterGroups,
    make_optimizer,
    parameter_groups,
    scheduled,
)
from minerva_acme.learners.parts import Part
from minerva_acme.learners.priorities import Priorities
from minerva_acme.learners.random_shift import RandomShift
from minerva_acme.learners.ranks import LearnerLost, NonFiniteElsewhere, Ranks
from minerva_acme.learners.samples import Kind, checked_samples
from minerva_acme.learners.statistics import (
    ObservationStatistics,
    ReturnStatistics,
    Statistics,
    warn_of_fixed_statistics,
)
from minerva_acme.learners.targets import make_target, update_target
from minerva_acme.learners.updates import Group, Metrics, Updates, differentiate

__all__ = [
    "Averages",
    "Batch",
    "EstimateFunction",
    "Estimated",
    "Group",
    "Kind",
    "LARGEST",
    "LearnerLost",
    "LinearDecay",
    "Loss",
    "LossFunction",
    "LossLearner",
    "Metrics",
    "ModuleLearner",
    "NonFinite",
    "NonFiniteElsewhere",
    "ObservationStatistics",
    "OptimizerFactory",
    "ParameterGroups",
    "Part",
    "Priorities",
    "RandomShift",
    "Ranks",
    "ReturnStatistics",
    "Statistics",
    "Updates",
    "WAY_OUT",
    "at",
    "average_of",
    "checked_fields",
    "checked_samples",
    "differentiate",
    "is_read_at_once",
    "make_optimizer",
    "make_target",
    "next_batch",
    "next_sample",
    "parameter_groups",
    "read",
    "require_finite",
    "scheduled",
    "update_target",
    "warn_of_fixed_statistics",
    "where_unmasked",
]
