"""Trajectories of fixed length that continue across the ends of episodes."""

from collections.abc import Mapping

import dm_env

from minerva_acme.adders import base
from minerva_acme.adders.sequence import SequenceAdder
from minerva_acme.replay import base as replay
from minerva_acme.replay import layouts


class ContinuingSequenceAdder(SequenceAdder):
    """Writes trajectories of T transitions from one endless stream of timesteps.

    The drawing shows an episode of 2 steps and the next one, with T = 4 and period 2. `s_t` is a row: the
    observation at t and the action, reward and discount that led to it; `z_t` are the rows of the second
    episode. Each line is an item, with its mask.

        FIRST  MID  LAST  FIRST  MID  MID  ...
        s_0    s_1  s_2   z_0    z_1  z_2  ...
        [========================]           1 1 0 1    written when z_1 arrives
                    [==================...   0 1 1 ...  written when it is full

    **The boundary.** Between LAST and FIRST there is no transition: where `z_0` follows `s_2` the mask
    is 0, and so are action, reward, discount and extras. The mask alone tells a learner where to cut, as
    with padding: in `losses.retrace_targets` and `losses.n_step_targets` no trace and no reward passes a
    masked step, and the step before it bootstraps from `s_2`, the true last observation. A recurrent
    learner starts from its initial state at the observation after a masked step.

    Termination: s_2 has discount 0. Truncation, by the environment or by `reset`: s_2 keeps the
    discount that came with it. Neither writes an extra item: an incomplete sequence waits for the next
    episode, and `close` pads it as `pad_every_start` does. An item in which no step happened is not
    written.
    """

    def __init__(
        self,
        *,
        client: replay.ReplayClient,
        table: str | Mapping[str, base.Priority],
        layout: layouts.TrajectoryLayout,
        period: int,
        priority: base.Priority = 1.0,
    ) -> None:
        """Initialises the adder. The client is not used before the first episode.

        Args:
            client: The client of the store that holds the tables.
            table: The name of a table, or the names of several with the priority of items in each. The
                tables must have the layout's signature.
            layout: The layout of trajectories in replay; it sets T, the length of all items.
            period: The number of rows between the starts of items, in [1, T].
            priority: The priority of each new item, if `table` is one name.

        Raises:
            ValueError: The period is out of range, or a priority is negative.
        """
        super().__init__(client=client, table=table, layout=layout, period=period, priority=priority)

    def write_first(self, writer: replay.Writer, timestep: dm_env.TimeStep) -> None:
        rows = self._layout.first(timestep.observation)
        if not self._num_rows:
            self._lead(writer, rows)
        self._add_row(writer, rows, happened=False)

    def write_end(self, writer: replay.Writer) -> None:
        writer.flush()  # Sends what is due. For the store, the stream continues.

    def write_rest(self, writer: replay.Writer) -> None:
        while self._next_start < self._last_step:
            self._add_row(writer, self._layout.padding(self._rows[-1]), happened=False)
