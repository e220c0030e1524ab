"""The parts of a learner that cross agents: each acts before the losses of a step, or after them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from minerva_acme import types
from minerva_acme.learners import finite
from minerva_acme.learners import ranks as learner_ranks


class Part:
    """Something that `LossLearner` does in each step besides minimising losses.

    Attributes:
        updated_encoders: The encoders whose statistics it updates.
        ranks: The learners that make the same steps, each from its share of the batch, or None; set by the
            learner.
        require_finite: Raises `NonFinite` unless all tensors, given by name, are finite; set by the learner.
    """

    updated_encoders: Sequence[nn.Module] = ()
    ranks: learner_ranks.Ranks | None = None
    require_finite: Callable[[Mapping[str, types.NestedTensor]], None] = staticmethod(finite.require_finite)

    def add_modules(self, modules: Mapping[str, nn.Module]) -> Mapping[str, nn.Module]:
        """Returns further modules, by name, for the learner to save and serve. The learner calls it once.

        Args:
            modules: The learner's own modules by name.
        """
        return {}

    def before(self, batch: Any, num_steps: int) -> None:
        """Acts on a `Batch` before the estimates, after `num_steps` learner steps.

        If the batch is skipped, buffers return to what they were.
        """

    def after(self, batch: Any, metrics: Mapping[str, Any], num_steps: int) -> None:
        """Acts after the losses and targets of a batch that was not skipped before; otherwise as `before`."""

    def restored(self) -> None:
        """Acts after the learner was restored."""
