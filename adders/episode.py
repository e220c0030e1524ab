"""An adder of whole episodes."""

from collections.abc import Mapping

from minerva_acme.adders import base
from minerva_acme.adders.sequence import SequenceAdder
from minerva_acme.replay import base as replay
from minerva_acme.replay import layouts


class EpisodeAdder(SequenceAdder):
    """Writes each episode as one trajectory, padded to the T transitions that an episode may have.

    The drawing shows an episode of 3 steps, with T = 5. `s_t` is a row: the observation at t and the
    action, reward and discount that led to it. The line is the item, with its mask.

        FIRST  MID  MID  LAST
        s_0    s_1  s_2  s_3   pad  pad
        [===========================]     1 1 1 0 0    written because the episode ends

    Termination: s_3 has discount 0. Truncation, by the environment or by `reset`: s_3 keeps the
    discount that came with it, and its observation is the true last one, to bootstrap from. In both
    cases, `pad` repeats that observation and is 0 elsewhere, including the mask. With a layout of
    variable length it is not stored: items end with s_3, and the layout's `unpack` pads them the same
    way. An episode that is reset before its first step writes nothing.

    A step after the T-th raises an error and changes nothing: the T steps before it are kept, and `reset`
    or `close` writes them as an episode that was truncated there.
    """

    def __init__(
        self,
        *,
        client: replay.ReplayClient,
        table: str | Mapping[str, base.Priority],
        layout: layouts.TrajectoryLayout,
        priority: base.Priority = 1.0,
    ) -> None:
        """Initialises the adder. The client is not used before the first episode.

        Args:
            client: The client of the store that holds the tables.
            table: The name of a table, or the names of several with the priority of items in each. The
                tables must have the layout's signature.
            layout: The layout of trajectories in replay; its sequence length is T, the largest number of
                transitions in an episode.
            priority: The priority of each new item, if `table` is one name.

        Raises:
            ValueError: A priority is negative or not finite.
        """
        super().__init__(
            client=client, table=table, layout=layout, period=layout.sequence_length, priority=priority
        )

    def write_step(self, writer: replay.Writer, step: base.Step) -> None:
        if self._last_step == self._length:
            raise ValueError(
                f"An episode must have at most {self._length} steps, the layout's sequence length, got one "
                "more. Lengthen the layout, or limit the steps in a wrapper of the environment. `reset` "
                f"writes the {self._length} steps so far, as if a time limit had ended the episode there."
            )
        rows, state = self._pack(step), self._layout.state(step.extras)
        self._last_step = self._num_rows
        self._append(writer, rows, state)
