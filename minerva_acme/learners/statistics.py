"""Running statistics that a learner updates, with a warning if one batch spoils them."""

import logging
from collections.abc import Mapping

import torch
from torch import nn

from minerva_acme import constraints, networks
from minerva_acme.learners import finite
from minerva_acme.learners import ranks as learner_ranks

_logger = logging.getLogger(__name__)

# One batch that multiplies a standard deviation by more than this is reported.
_SUSPICIOUS_GROWTH = 1e3


class Statistics:
    """Updates `networks.RunningNorm`s, and warns once per field about extreme rows.

    Attributes:
        ranks: The learners whose rows are all taken, or None if there is one.
    """

    def __init__(self, ranks: learner_ranks.Ranks | None = None) -> None:
        self.ranks = ranks
        self._warned_of: set[str] = set()

    def update(self, norm: networks.RunningNorm, field: str, rows: torch.Tensor) -> None:
        """Updates statistics with rows.

        Args:
            norm: The statistics, updated in place.
            field: The name of the field that the rows come from, for the warning.
            rows: The rows, [..., O]; see `networks.RunningNorm.update`.
        """
        if self.ranks is not None:
            rows = self.ranks.gather(rows)
        scale = (norm.var + norm.mean.square()).clamp(min=1.0)
        is_new = norm.count < 1.0  # There is nothing to compare the first batch with.
        num_left_out = norm.update(rows)
        growth = (norm.var / scale).amax().sqrt().masked_fill(is_new, 0.0)
        left_out, growth = finite.read(torch.stack([num_left_out.float(), growth]))
        if field in self._warned_of or not (left_out or growth > _SUSPICIOUS_GROWTH):
            return
        self._warned_of.add(field)
        found = (
            f"{left_out:.0f} rows of `{field}` are not finite or beyond {constraints.LARGEST:g}; its running "
            "statistics leave them out. "
            if left_out
            else f"One batch made the running standard deviation of `{field}` {growth:.2g} times as large as "
            "before: values that are divided by it will be close to 0 from now on. "
        )
        _logger.warning("%s%s", found, finite.WAY_OUT)


def warn_of_fixed_statistics(modules: Mapping[str, nn.Module], *, updated: nn.Module | None = None) -> None:
    """Warns of each `networks.NormalizedEncoder` that has no statistics yet, and that no learner updates.

    Args:
        modules: The modules that are trained, by name.
        updated: The encoder whose statistics the learner updates, or None.
    """
    for name, part in nn.ModuleDict(dict(modules)).named_modules():
        if not isinstance(part, networks.NormalizedEncoder) or part is updated:
            continue
        norms = [norm for norm in part.modules() if isinstance(norm, networks.RunningNorm)]
        if any(float(norm.count) < 1.0 for norm in norms):
            _logger.warning(
                "the statistics of the `NormalizedEncoder` at `%s` are empty, and this learner does not "
                "update them: until you do, by its `RunningNorm.update`, it only clips observations. Agents "
                "that normalise them have the setting `normalize_observations`",
                name,
            )
