"""A warning if bfloat16 is not precise enough for a critic's values."""

import logging
from collections.abc import Mapping

import torch

from minerva_acme import learners

_logger = logging.getLogger(__name__)

_MIN_Q_SPREAD = 0.002  # below it, rounding changes which of a state's sampled actions look good
_PERIOD = 1000  # learner steps between checks


def warn_of_small_spread(metrics: Mapping[str, torch.Tensor], learner_step: int) -> None:
    """Warns from time to time if `q/spread_rel`, logged with bfloat16, is too small for it."""
    if "q/spread_rel" not in metrics or learner_step % _PERIOD:
        return
    spread = learners.read(metrics["q/spread_rel"])
    if spread < _MIN_Q_SPREAD:
        _logger.warning(
            "learner step %d: values within a state differ by %.2g of their size, too little for bfloat16, "
            "which blurs them below %g. Set `target_precision` to float32.",
            learner_step,
            spread,
            _MIN_Q_SPREAD,
        )
