"""Priorities of replayed items: the weights that correct for them, and their updates."""

from collections.abc import Callable

import numpy as np
import torch

from minerva_acme import losses
from minerva_acme.learners import finite
from minerva_acme.replay import base as replay


class Priorities:
    """Weights a batch from a prioritised table, and writes its new priorities back.

    Source: Schaul et al. 2016, "Prioritized experience replay". In the paper, a priority is |TD error| plus a
    small number. TD errors are clipped to [-1, 1] there, so that the adders' priority of 1 is the largest and
    new items are sampled soon.
    """

    def __init__(
        self, *, client: replay.ReplayClient, table: str, importance_exponent: Callable[[int], float]
    ) -> None:
        """Makes the priorities of one table.

        Args:
            client: The client of the store that holds the table.
            table: The name of the table, which is sampled by priority.
            importance_exponent: The function from the number of learner steps so far to beta of
                `losses.importance_weights`.
        """
        self._client = client
        self._table = table
        self._importance_exponent = importance_exponent

    def weights(self, info: replay.SampleInfo, learner_steps: int) -> torch.Tensor:
        """Returns the weight of each item in the loss, float32 [B], on the CPU."""
        return losses.importance_weights(
            torch.from_numpy(info.probability),
            torch.from_numpy(info.table_size),
            self._importance_exponent(learner_steps),
        )

    def update(self, info: replay.SampleInfo, priorities: torch.Tensor) -> None:
        """Sets the priorities of a batch's items.

        Args:
            info: The sample info of the batch.
            priorities: The new priorities, >= 0, [B].

        Raises:
            NonFinite: A priority is infinite or not a number.
            ValueError: A priority is negative, or the priorities are not [B].
        """
        values = finite.read(priorities.detach())
        finite.require_finite({"priorities": torch.tensor(values)})
        self._client.update_priorities(self._table, info.key, np.array(values))
