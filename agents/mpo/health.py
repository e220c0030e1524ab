"""Warnings for a run whose numbers say that it cannot learn well."""

import logging
from collections.abc import Mapping

import torch

from minerva_acme import learners

_logger = logging.getLogger(__name__)

_MIN_Q_SPREAD = 0.002  # below it, rounding changes which of a state's sampled actions look good
_MAX_CLIPPED_MEANS = 0.3
_PERIOD = 1000  # learner steps between looks at the numbers, for which the host waits


class Health(learners.Part):
    """Looks at a learner's metrics from time to time.

    It warns of values too close for bfloat16, and once of a policy that stays beyond its bounds.
    """

    def __init__(self) -> None:
        self._was_clipped = False  # at the last look
        self._has_warned = False  # of means beyond the bounds

    def after(self, batch: learners.Batch, metrics: Mapping[str, torch.Tensor], num_steps: int) -> None:
        if num_steps % _PERIOD:
            return
        spread = metrics.get("q/spread_rel")
        if spread is not None and learners.read(spread) < _MIN_Q_SPREAD:
            _logger.warning(
                "learner step %d: values within a state differ by %.2g of their size, too little for "
                "bfloat16, which blurs them below %g. Set `target_precision` to float32.",
                num_steps,
                learners.read(spread),
                _MIN_Q_SPREAD,
            )
        clipped = metrics.get("policy/clipped_means")
        if clipped is None or self._has_warned or not num_steps:
            return
        share = learners.read(clipped)
        if share > _MAX_CLIPPED_MEANS and self._was_clipped:
            self._has_warned = True
            _logger.warning(
                "learner step %d: %.0f %% of the policy's means lie beyond the bounds of the actions, as "
                "many did %d steps ago. There all actions are clipped to the same one, and nothing brings "
                "a mean back. Set `bounded_mean`, or give your own policy network a mean within the bounds.",
                num_steps,
                100.0 * share,
                _PERIOD,
            )
        self._was_clipped = share > _MAX_CLIPPED_MEANS
