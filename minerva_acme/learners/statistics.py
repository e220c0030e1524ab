"""Running statistics that a learner updates, with a warning if one batch spoils them."""

import collections
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from minerva_acme import constraints, networks, types
from minerva_acme.learners import batches, finite, parts
from minerva_acme.learners import targets as learner_targets

_logger = logging.getLogger(__name__)

# One batch that multiplies a standard deviation by more than this is reported.
_SUSPICIOUS_GROWTH = 1e3


class Statistics(parts.Part):
    """A part that updates `networks.RunningNorm`s, and warns once per field about extreme rows.

    It takes the rows of all learners that make the same steps.
    """

    def __init__(self) -> None:
        self._warned_of: set[str] = set()
        self._num_updates = collections.Counter[str]()
        self._largest: dict[str, torch.Tensor] = {}  # [2] rows left out and growth, since the last look

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
        if field in self._warned_of:
            return
        found = torch.stack([num_left_out.float(), growth])
        self._largest[field] = torch.maximum(found, self._largest.get(field, found))
        self._num_updates[field] += 1
        if not finite.is_read_at_once(rows) and self._num_updates[field] % finite.READ_PERIOD != 1:
            return
        left_out, growth = finite.read(self._largest.pop(field))
        if not (left_out or growth > _SUSPICIOUS_GROWTH):
            return
        self._warned_of.add(field)
        message = (
            f"{left_out:.0f} rows of `{field}` are not finite or beyond {constraints.LARGEST:g}; its running "
            "statistics leave them out. "
            if left_out
            else f"One batch made the running standard deviation of `{field}` {growth:.2g} times as large as "
            "before: values that are divided by it will be close to 0 from now on. "
        )
        _logger.warning("%s%s", message, finite.WAY_OUT)


class ObservationStatistics(Statistics):
    """Updates the running statistics of observations before the losses of each batch.

    Of sequences it takes the first step that is learned from, drawn as often as it occurs. Target networks
    get new statistics when they are moved. Only the first ones are copied to them at once: without any,
    observations would not be normalised.
    """

    def __init__(self, modules: Mapping[str, nn.Module], *, burn_in: int = 0) -> None:
        """Finds the `networks.NormalizedEncoder`s.

        Args:
            modules: Modules with an `encoder` that normalises, or has a memory behind one that does, or such
                encoders; modules with "target" in their names are copies.
            burn_in: The steps of a sequence that only warm up a memory.
        """
        super().__init__()
        found = {name: _normalized_encoder(module) for name, module in modules.items()}
        self.updated_encoders = [each for name, each in found.items() if each and "target" not in name]
        self._online: list[Any] = [*dict.fromkeys(encoder.normalizer for encoder in self.updated_encoders)]
        self._targets = [each.normalizer for name, each in found.items() if each and "target" in name]
        self._burn_in = burn_in
        self._may_lack_statistics = True  # as before the first batch

    def before(self, batch: Any, num_steps: int) -> None:
        observation = batch.data.observation
        if isinstance(batch.data, types.Trajectory):
            observation = batches.at(observation, (slice(None), self._burn_in))
        found = [each for norm in self._online for each in norm.parts("observation", observation)]
        self._may_lack_statistics = self._may_lack_statistics and any(
            finite.read(norm.count) < 1.0 for _, norm, _ in found
        )
        updated: dict[str, networks.RunningNorm] = {}
        for name, norm, rows in found:
            if name not in updated:
                updated[name] = norm
                self.update(norm, name, rows)
            else:  # Another network has seen the same observations.
                learner_targets.update_target(norm, updated[name], num_steps)
        if self._may_lack_statistics:
            for normalizer in self._targets:
                for name, norm, _ in normalizer.parts("observation", observation):
                    learner_targets.update_target(norm, updated[name], num_steps)

    def restored(self) -> None:
        self._may_lack_statistics = True


def _normalized_encoder(module: nn.Module) -> networks.NormalizedEncoder | None:
    """Returns the part of a module that normalises its observations, or None."""
    found: Any = module
    while not isinstance(found, networks.NormalizedEncoder):
        found = getattr(found, "encoder", None)
        if not isinstance(found, networks.NormalizedEncoder | networks.RecurrentEncoder):
            return None
    return found


class ReturnStatistics(Statistics):
    """Updates the running scale of returns by the `running_return` in the extras of sequences."""

    def __init__(self, scale: networks.ReturnScale, *, burn_in: int = 0) -> None:
        """For the arguments see `ObservationStatistics`."""
        super().__init__()
        self._scale = scale
        self._burn_in = burn_in

    def before(self, batch: Any, num_steps: int) -> None:
        first = batch.data.extras.running_return[:, self._burn_in : self._burn_in + 1]
        self.update(self._scale, "running_return", first)


def warn_of_fixed_statistics(modules: Mapping[str, nn.Module], *, updated: Sequence[nn.Module] = ()) -> None:
    """Warns of each `networks.NormalizedEncoder` that has no statistics yet, and that no learner updates.

    Args:
        modules: The modules that are trained, by name.
        updated: The encoders whose statistics the learner updates.
    """
    for name, part in nn.ModuleDict(dict(modules)).named_modules():
        if not isinstance(part, networks.NormalizedEncoder) or any(part is each for each in updated):
            continue
        norms = [norm for norm in part.modules() if isinstance(norm, networks.RunningNorm)]
        if any(float(norm.count) < 1.0 for norm in norms):
            _logger.warning(
                "the statistics of the `NormalizedEncoder` at `%s` are empty, and this learner does not "
                "update them: until you do, by its `RunningNorm.update`, it only clips observations. Agents "
                "that normalise them have the setting `normalize_observations`",
                name,
            )
