"""What learners have in common, as parts to hold rather than a class to inherit from."""

from minerva_acme.learners.learning import (
    NonFinite,
    SkippedBatches,
    StepLog,
    check_finite,
    next_batch,
    variables_of,
)

__all__ = ["NonFinite", "SkippedBatches", "StepLog", "check_finite", "next_batch", "variables_of"]
