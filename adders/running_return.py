"""An adder that records the discounted sum of rewards so far."""

import dm_env
import numpy as np

from minerva_acme import core, types
from minerva_acme.adders.forking import ForkingAdder
from minerva_acme.replay import base as replay


class RunningReturnAdder(ForkingAdder):
    """Records G_t = r_t + gamma G_{t-1} with each step, for `networks.ReturnScale`.

    The sum starts at 0 with each episode. It becomes the field `running_return` of the step's extras, a named
    tuple such as `BehaviourExtras`. At FIRST, MID and LAST the inner adder writes what it always writes.
    """

    def __init__(self, adder: core.Adder, *, discount: float) -> None:
        """Takes ownership of the adder: closing this adder closes it.

        Args:
            adder: The adder to write with. Its spec of the extras has a float32 [] as `running_return`.
            discount: Gamma, in [0, 1].

        Raises:
            ValueError: The discount is out of range.
        """
        super().__init__([adder])
        if not 0.0 <= discount <= 1.0:
            raise ValueError(f"`discount` must be in [0, 1], got {discount}.")
        self._discount = discount
        self._sum = 0.0

    def add_first(self, timestep: dm_env.TimeStep) -> None:
        super().add_first(timestep)
        self._sum = 0.0

    def add(
        self,
        action: types.NestedArray,
        next_timestep: dm_env.TimeStep,
        extras: types.NestedArray = (),
    ) -> None:
        total = self._discount * self._sum + next_timestep.reward
        try:
            super().add(action, next_timestep, extras._replace(running_return=np.float32(total)))
        except replay.ReplayTimeout:  # The step is added, and its item is sent later.
            self._sum = total
            raise
        self._sum = total
