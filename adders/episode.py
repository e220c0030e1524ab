"""Whole episodes."""

from collections.abc import Mapping

from minerva_acme.adders import base
from minerva_acme.adders.sequence import SequenceAdder
from minerva_acme.replay import base as replay
from minerva_acme.replay import layouts


class EpisodeAdder(SequenceAdder):
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
            client=client, table=table, layout=layout, period=layout.sequence_length, priority=priority
        )

    def write_step(self, writer: replay.Writer, step: base.Step) -> None:
        if self._last_step == self._length:
            raise ValueError(
                f"An episode must have at most {self._length} steps, the layout's sequence length, got one "
                "more. Lengthen the layout, or limit the steps in a wrapper of the environment; `reset` "
                f"writes the {self._length} steps so far, as if a time limit had ended the episode there."
            )
        rows = self._pack(step)
        self._last_step = self._num_rows
        self._append(writer, rows)
