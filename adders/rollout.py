"""An adder of on-policy rollouts of fixed length."""

import logging
from collections.abc import Mapping

import dm_env
import numpy as np
import torch
import tree

from minerva_acme import core, types
from minerva_acme.adders import base
from minerva_acme.replay import base as replay
from minerva_acme.replay import layouts, packing

_logger = logging.getLogger(__name__)


class RolloutAdder(base.BaseAdder, core.Saveable):
    """Writes every T steps of one environment as a rollout, across the ends of episodes.

    The drawing shows three episodes, of 2, 3 and more steps, with T = 3. `s_t` is a row, the whole
    transition from o_t to o_{t+1}. Each line is an item, with its `last`.

        FIRST  MID   LAST   FIRST  MID   MID   LAST   FIRST  MID
        o_0    o_1   o_2    p_0    p_1   p_2   p_3    q_0    q_1  ...
           [s_0]  [s_1]        [s_2] [s_3] [s_4]         [s_5]
           [=======================]                               0 1 1   written when p_1 arrives
                                     [=======================]     0 1 1   written when q_1 arrives

    Between LAST and FIRST there is no transition and no row. Termination: s_1 has discount 0.
    Truncation, by the environment or by `reset`: s_1 keeps the discount that came with it. In both cases
    its `next_observation` is o_2, the true last one, to bootstrap from, and its `last` is 1. `last` is also
    1 for an item's last step, here s_2, whose episode continues in the next item. Every step is in exactly
    one item, however its episode ends; `reset` writes no item, but the next step begins a new episode.

    `return_so_far` is the quantity whose spread scales the rewards; with several rewards there is one for
    each, by name. With an episode's rewards r_k,

        return_so_far_t = r_t + gamma * return_so_far_{t-1},    return_so_far_{-1} = 0

    An item is sent before `add` returns, so that no rollout waits for later steps. If the table is a full
    queue, `add` waits for the learner. An item has exactly T rows, so `close` drops the steps of an
    unfinished rollout, and logs how many; `save` keeps them for a resumed run.
    """

    def __init__(
        self,
        *,
        client: replay.ReplayClient,
        table: str | Mapping[str, base.Priority],
        layout: layouts.RolloutLayout,
        discount: float,
        priority: base.Priority = 1.0,
    ) -> None:
        """Initialises the adder. The client is not used before the first episode.

        Args:
            client: The client of the store that holds the tables.
            table: The name of a table, or the names of several with the priority of items in each. The
                tables must have the layout's signature.
            layout: The layout of rollouts in replay; it sets T.
            discount: The discount gamma, per step, in [0, 1]; used only for `return_so_far`.
            priority: The priority of each new item, if `table` is one name.

        Raises:
            ValueError: A number is out of its range.
        """
        if not 0.0 <= discount <= 1.0:
            raise ValueError(f"`discount` must be in [0, 1], got {discount}.")
        super().__init__(
            client=client,
            table=table,
            priority=priority,
            signature=layout.signature,
            max_window=layout.rollout_length,
        )
        self._layout = layout
        self._gamma = discount
        self._rows: list[packing.Rows] = []  # of the unfinished rollout
        self._num_rows = 0  # written since the beginning, in all rollouts
        self._observation: packing.Rows = {}  # the newest
        self._is_first = True  # the next step is the first of its episode
        self._return_so_far: types.NestedArray = 0.0  # one for each reward

    def save(self) -> core.State:
        """Returns the steps of the unfinished rollout and the state of the open episode."""
        names = self._signature.columns if self._rows else ()
        return {
            "rollout_length": self._layout.rollout_length,
            "rows": {name: torch.from_numpy(np.stack([row[name] for row in self._rows])) for name in names},
            "is_open": self._is_open and not self._has_ended,
            "observation": {name: torch.from_numpy(row.copy()) for name, row in self._observation.items()},
            "is_first": self._is_first,
            "return_so_far": self._return_so_far,
        }

    def restore(self, state: core.State) -> None:
        """Restores a state from `save` into a new adder, and writes its steps again.

        If an episode was open, it is open again. If the environment cannot continue it, `reset` ends it as a
        time limit would.

        Raises:
            ValueError: The adder has been used, or the state is from rollouts of a different kind.
        """
        if self._is_closed or self._writer is not None:
            raise ValueError("A state must be restored into a new adder, got a used one. Make a new one.")
        rows = {name: tensor.cpu().numpy() for name, tensor in state["rows"].items()}
        self._check_fits(state["rollout_length"], rows)
        num_rows = len(next(iter(rows.values()), ()))
        self._writer = self._client.writer(self._max_window)
        for t in range(num_rows):
            row = {name: column[t].copy() for name, column in rows.items()}
            self._writer.append(row)
            self._rows.append(row)
        self._num_rows = num_rows
        self._observation = {
            name: tensor.cpu().numpy().copy() for name, tensor in state["observation"].items()
        }
        self._is_open = state["is_open"]
        self._is_first = state["is_first"]
        self._return_so_far = state["return_so_far"]

    def _check_fits(self, rollout_length: int, rows: Mapping[str, np.ndarray]) -> None:
        found = {name: (column.shape[1:], column.dtype) for name, column in rows.items()}
        expected = {name: (column.shape, column.dtype) for name, column in self._signature.columns.items()}
        length = self._layout.rollout_length
        if rollout_length != length or (found and found != expected):
            raise ValueError(
                f"`state` must hold rollouts of {length} steps with the columns {expected}, got "
                f"{rollout_length} steps with {found}. Resume with the configuration it was saved with."
            )

    def write_first(self, writer: replay.Writer, timestep: dm_env.TimeStep) -> None:
        self._observation = self._layout.first(timestep.observation)
        self._is_first = True
        self._return_so_far = tree.map_structure(lambda _: 0.0, self._layout.reward_spec)

    def write_step(self, writer: replay.Writer, step: base.Step) -> None:
        packed = self._layout.step(*step)
        return_so_far = self._added(step.next_timestep.reward)
        rows = self._layout.transition(
            observation=self._observation, step=packed, first=self._is_first, return_so_far=return_so_far
        )
        length = self._layout.rollout_length
        is_full = len(self._rows) + 1 == length
        priorities = self.priorities_of(lambda: self._layout.item([*self._rows, rows])) if is_full else {}
        # Nothing is rejected from here on.
        writer.append(rows)
        self._rows.append(rows)
        self._num_rows += 1
        self._observation = self._layout.next_observation(packed)
        self._is_first = False
        self._return_so_far = return_so_far
        if is_full:
            self._rows = []
            self.create_items(writer, self._layout.fields(self._num_rows - length), priorities)
            writer.flush()

    def _added(self, reward: types.NestedArray) -> types.NestedArray:
        """Returns the return so far with another reward."""
        if not isinstance(reward, dict):  # the usual case; `tree` takes ten times as long
            return float(reward) + self._gamma * self._return_so_far
        return tree.map_structure(
            lambda number, so_far: float(number) + self._gamma * so_far, reward, self._return_so_far
        )

    def write_end(self, writer: replay.Writer) -> None:
        writer.flush()  # Sends an item that had to wait. For the store, the stream continues.

    def write_rest(self, writer: replay.Writer) -> None:
        del writer
        if self._rows:
            _logger.info(
                "dropped %d steps of an unfinished rollout of %d",
                len(self._rows),
                self._layout.rollout_length,
            )
