"""Whole episodes."""

from collections.abc import Mapping

import dm_env

from minerva_acme import types
from minerva_acme.adders import base
from minerva_acme.replay import base as replay
from minerva_acme.replay import layouts, packing


class EpisodeAdder(base.BaseAdder):
    """Writes each episode as one trajectory, padded to the T transitions that an episode may have.

    An episode of 3 steps, with T = 5. `s_t` is a row: the observation at t and the action, reward and
    discount that led to it. The line is the item, and what its mask says.

        FIRST  MID  MID  LAST
        s_0    s_1  s_2  s_3   pad  pad
        [===========================]     1 1 1 0 0    written because the episode ends

    Termination: s_3 has discount 0. Truncation, by the environment or by `reset`: s_3 keeps the
    discount that came with it, and its observation is the true last one, to bootstrap from. After
    both, `pad` repeats that observation and is 0 elsewhere, the mask included. With a layout of
    variable length it is not stored: items end with s_3, and the layout's `unpack` pads them alike.
    Nothing is written of an episode that is reset before its first step.

    A step beyond the T-th is refused before anything is done with it: the T steps before it are kept,
    and `reset` or `close` writes them as an episode that was truncated there.
    """

    def __init__(
        self,
        *,
        client: replay.ReplayClient,
        table: str | Mapping[str, base.Priority],
        layout: layouts.TrajectoryLayout,
        priority: base.Priority = 1.0,
    ) -> None:
        """Initialises; nothing is asked of the client before the first episode.

        Args:
            client: of the store that holds the tables.
            table: the table's name, or the names of several with the priority in each; their
                signature is the layout's.
            layout: how trajectories lie in replay; its sequence length is T, the most transitions
                that an episode has.
            priority: of each new item, where `table` is one name.

        Raises:
            ValueError: a priority is negative or not finite.
        """
        super().__init__(
            client=client,
            table=table,
            priority=priority,
            signature=layout.signature,
            max_window=layout.sequence_length + 1,
        )
        self._layout = layout
        self._rows: list[packing.Rows] = []  # written for this episode: its timesteps, then padding
        self._num_steps = 0  # of this episode
        self._is_written = False

    def _write_first(self, writer: replay.Writer, timestep: dm_env.TimeStep) -> None:
        rows = self._layout.first(timestep.observation)
        self._rows, self._num_steps, self._is_written = [], 0, False
        self._append(writer, rows)

    def _write_step(
        self,
        writer: replay.Writer,
        action: types.NestedArray,
        next_timestep: dm_env.TimeStep,
        extras: types.NestedArray,
    ) -> None:
        max_steps = self._layout.sequence_length
        if self._num_steps == max_steps:
            raise ValueError(
                f"An episode must have at most {max_steps} steps, the layout's sequence length, got one "
                "more. Lengthen the layout, or limit the steps in a wrapper of the environment; `reset` "
                f"writes the {max_steps} steps so far, as if a time limit had ended the episode there."
            )
        rows = self._layout.step(action, next_timestep, extras)
        self._append(writer, rows)
        self._num_steps += 1

    def _write_end(self, writer: replay.Writer) -> None:
        if self._num_steps and not self._is_written:
            while len(self._rows) <= self._layout.sequence_length and not self._layout.variable_length:
                self._append(writer, self._layout.padding(self._rows[-1]))
            priorities = self._evaluate(lambda: self._layout.item(self._rows))
            self._is_written = True
            self._create_items(writer, self._layout.fields(0, len(self._rows)), priorities)
        writer.end_episode()

    def _append(self, writer: replay.Writer, rows: packing.Rows) -> None:
        writer.append(rows)
        self._rows.append(rows)
