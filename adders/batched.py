"""An adder of B environments at once, in tensors."""

from typing import Any

import dm_env
import torch

from minerva_acme import core, types
from minerva_acme.replay import base as replay
from minerva_acme.replay import layouts

_FIRST, _LAST = int(dm_env.StepType.FIRST), int(dm_env.StepType.LAST)


class BatchedAdder(core.BatchedAdder):
    """Writes each step of B environments as one row of a table that is a `replay.Ring`.

    The drawing shows the rows of two environments, one of which ends an episode at o_2 and resets in the same
    call, with `newest` p_0. A row is (where it was, what it led to).

        call            1            2            3            4
        environment 0   (o_0, o_1)   (o_1, o_2)   (p_0, p_1)   (p_1, p_2)
                        first        last         first
        environment 1   (q_0, q_1)   (q_1, q_2)   (q_2, q_3)   (q_3, q_4)

    Items are not written: the layout cuts them from windows of rows when they are sampled. They are those
    that B ordinary adders write: `NStepTransitionAdder`, `SequenceAdder` with `pad_every_start`, or
    `RolloutAdder`. But an item can be sampled once the n or T steps from its start have passed, also if its
    episode ended earlier.

    Termination: the last row has discount 0. Truncation, by the environment or by `reset`: it keeps the
    discount that came with it. In both cases its next observation is the true last one, to bootstrap from.

    An environment that resets in the next call leaves a row in which no item starts, (o_2, p_0) here; that
    row counts as a step. Rollouts are not possible then.

    No number is read on the host, so infinite or huge numbers are not rejected here: the learner skips a
    batch with them, and says which field has them.
    """

    def __init__(
        self,
        *,
        client: replay.ReplayClient,
        table: str,
        layout: layouts.BatchedLayout[Any],
        period: int = 1,
        discount: float = 1.0,
    ) -> None:
        """Initialises the adder.

        Args:
            client: The client of the store that holds the table.
            table: The name of the table, which has the layout's signature.
            layout: The layout of items.
            period: The number of steps of an episode between the starts of items, as in the table's `Ring`;
                not used by rollouts.
            discount: The discount gamma of `return_so_far`, per step, in [0, 1]. It is also recorded in the
                extras if they have a `running_return`.

        Raises:
            ValueError: A number is out of its range.
        """
        if period < 1:
            raise ValueError(f"`period` must be >= 1 step, got {period}.")
        if not 0.0 <= discount <= 1.0:
            raise ValueError(f"`discount` must be in [0, 1], got {discount}.")
        self._client = client
        self._table = table
        self._layout = layout
        self._period = period
        self._gamma = discount
        self._writer = client.batched_writer(table)
        self._inserted_before = client.table_info(table).inserted
        self._records_return = any(
            name.rpartition("/")[2] == "running_return" for name in layout.signature.columns
        )
        self._observation: types.NestedTensor = None  # where the environments are; None between episodes
        self._first: Any = None  # [B] whether the episode begins there
        self._step: Any = None  # [B] the number of the step in its episode
        self._return_so_far: Any = None  # [B]

    def add_first(self, timestep: types.BatchedTimeStep) -> None:
        if self._observation is not None:
            raise ValueError("Episodes are still open. `reset` ends them.")
        self._observation = timestep.newest
        self._first = torch.ones_like(timestep.step_type, dtype=torch.bool)
        self._step = torch.zeros_like(timestep.step_type, dtype=torch.int64)
        self._return_so_far = torch.zeros_like(timestep.reward, dtype=torch.float64)

    def add(
        self,
        actions: types.NestedTensor,
        next_timestep: types.BatchedTimeStep,
        extras: types.NestedTensor = (),
    ) -> None:
        if self._observation is None:
            raise ValueError("No episode is open. Call `add_first` with a FIRST timestep before `add`.")
        step_type, reward, discount, observation, newest = next_timestep
        step = torch.where(self._first, 0, self._step + 1)
        total = reward + self._gamma * self._return_so_far.masked_fill(self._first, 0.0)
        if self._records_return:
            extras = extras._replace(running_return=total.float())
        last, begins = step_type == _LAST, step_type == _FIRST
        row = layouts.BatchedRow(
            observation=self._observation,
            action=actions,
            reward=reward,
            discount=discount,
            last=last,
            next_observation=observation,
            first=self._first,
            return_so_far=total.float(),
            extras=extras,
        )
        starts = ~begins & (step % self._period == 0) if self._layout.by_episode else None
        self._writer.append(self._layout.pack(row), starts)
        # Nothing is rejected from here on.
        self._observation, self._first = newest, last | begins
        self._step, self._return_so_far = step, total

    @property
    def num_inserted(self) -> int:
        return self._client.table_info(self._table).inserted - self._inserted_before

    def reset(self) -> None:
        if self._observation is not None:
            self._writer.end_episodes(last=1.0)
        self._observation = None

    def close(self) -> None:
        self.reset()
        self._writer.close()
