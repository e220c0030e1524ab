"""Trajectories of fixed length."""

import dm_env

from minerva_acme import types
from minerva_acme.adders import base
from minerva_acme.replay import base as replay
from minerva_acme.replay import layouts, packing


class SequenceAdder(base.EpisodeAdder):
    """Writes trajectories of T transitions, one starting at every `period`-th step of an episode.

    An episode of 4 steps, with T = 3 and period 1. `s_t` is a row: the observation at t and the
    action, reward and discount that led to it. A line is an item, and what its mask says.

        FIRST  MID  MID  MID  LAST
        s_0    s_1  s_2  s_3  s_4   pad  pad
        [==================]                    1 1 1    written when s_3 arrives
               [=================]              1 1 1    written when s_4 arrives
                    [=================]         1 1 0    written because the episode ends
                         [=================]    1 0 0    likewise

    Termination: s_4 has discount 0, so nothing is bootstrapped. Truncation, by the environment or by
    `reset`: s_4 keeps the discount that came with it, and its observation is the true last one, to
    bootstrap from. After both, `pad` repeats that observation and is 0 elsewhere, the mask included.

    Items start at steps 0, period, 2 * period, ...: with period 1 every transition is the first of
    exactly one item. No item reaches into another episode.
    """

    def __init__(
        self,
        *,
        client: replay.ReplayClient,
        table: str,
        layout: layouts.TrajectoryLayout,
        period: int,
        priority: float = 1.0,
    ) -> None:
        """Initialises; nothing is asked of the client before the first episode.

        Args:
            client: of the store that holds the table.
            table: the table's name; its signature is the layout's.
            layout: how trajectories lie in replay; it holds T.
            period: steps between the starts of items, in [1, T].
            priority: of each new item.

        Raises:
            ValueError: the period is out of range, or the priority negative.
        """
        if not 1 <= period <= layout.sequence_length:
            raise ValueError(
                f"`period` must be in [1, {layout.sequence_length}], the sequence length, got {period}. "
                "Beyond it steps between two sequences would be lost. Lower it, or lengthen the sequences."
            )
        super().__init__(client=client, table=table, max_window=layout.sequence_length + 1, priority=priority)
        self._layout = layout
        self._period = period
        self._last_rows: packing.Rows = {}
        self._num_steps = 0  # of this episode
        self._num_rows = 0  # written for it: its timesteps, then padding
        self._next_start = 0  # row at which the next item starts

    def _write_first(self, writer: replay.Writer, timestep: dm_env.TimeStep) -> None:
        rows = self._layout.first(timestep.observation)
        self._num_steps, self._num_rows, self._next_start = 0, 0, 0
        self._append(writer, rows)

    def _write_step(
        self,
        writer: replay.Writer,
        action: types.NestedArray,
        next_timestep: dm_env.TimeStep,
        extras: types.NestedArray,
    ) -> None:
        rows = self._layout.step(action, next_timestep, extras)
        self._num_steps += 1
        self._append(writer, rows)

    def _write_end(self, writer: replay.Writer) -> None:
        while self._next_start < self._num_steps:
            self._append(writer, self._layout.padding(self._last_rows))

    def _append(self, writer: replay.Writer, rows: packing.Rows) -> None:
        writer.append(rows)
        self._last_rows = rows
        self._num_rows += 1
        if self._num_rows > self._next_start + self._layout.sequence_length:
            start = self._next_start
            self._next_start += self._period
            self._create_item(writer, self._layout.fields(start))
