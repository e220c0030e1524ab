"""An adder of trajectories of T transitions, or fewer at the end of an episode."""

import collections
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

import dm_env
import numpy as np

from minerva_acme.adders import base
from minerva_acme.replay import base as replay
from minerva_acme.replay import layouts, packing


class EndedEpisode(NamedTuple):
    """The state of an episode of `SequenceAdder` when it ends."""

    num_steps: int  # transitions in the episode
    next_start: int  # the step at which the next sequence would start; all that start before are written
    sequence_length: int  # T
    period: int

    @property
    def first_start(self) -> int:
        """The earliest step at which a sequence can still start; the rows before it may be dropped."""
        return max(0, self.num_steps - self.sequence_length)

    @property
    def num_covered(self) -> int:
        """The number of steps, from the first on, that are already part of a sequence."""
        return self.next_start - self.period + self.sequence_length if self.next_start else 0


AtEnd: TypeAlias = Callable[[EndedEpisode], Iterable[int]]
"""A function that returns the steps at which the remaining sequences of an ended episode start.

The steps are in ascending order, from `episode.first_start` to `num_steps` - 1. The function is called once
per episode, but not for an episode without steps. If it raises an error or returns invalid steps, the `add`,
`reset` or `close` that ended the episode raises an error, once. The sequences written so far are then kept,
the others are lost, and `reset` ends the episode.
"""


def pad_every_start(episode: EndedEpisode) -> Iterable[int]:
    """Starts a sequence at every remaining `period`-th step, padded after the end of the episode.

    With period 1 every transition is the first of exactly one sequence, so that all transitions have
    equal weight in a learner that uses the first steps of sequences most.
    """
    return range(episode.next_start, episode.num_steps, episode.period)


def write_short(episode: EndedEpisode) -> Iterable[int]:
    """Writes the remaining steps as one sequence that is shorter than T, like Acme's TRUNCATE.

    Needs a layout of variable length. The item is stored without padding; the layout's `unpack` pads it
    for the learner.
    """
    return [episode.next_start] if episode.num_covered < episode.num_steps else []


def shift_back(episode: EndedEpisode) -> Iterable[int]:
    """Writes the remaining steps with the steps before them, T in total, like Acme's WRITE.

    All sequences have T steps, except in an episode shorter than T.
    """
    if episode.num_covered >= episode.num_steps:
        return []
    return [episode.first_start]


def drop_short(episode: EndedEpisode) -> Iterable[int]:
    """Writes nothing. Steps that do not fill a sequence are lost, such as an episode shorter than T."""
    del episode
    return []


class SequenceAdder(base.BaseAdder):
    """Writes trajectories of T transitions, one starting at every `period`-th step of an episode.

    The drawing shows an episode of 4 steps, with T = 3 and period 1. `s_t` is a row: the observation at t
    and the action, reward and discount that led to it. Each line is an item, with its mask.

        FIRST  MID  MID  MID  LAST
        s_0    s_1  s_2  s_3  s_4   pad  pad
        [==================]                    1 1 1    written when s_3 arrives
               [=================]              1 1 1    written when s_4 arrives
                    [=================]         1 1 0    written because the episode ends
                         [=================]    1 0 0    same

    Termination: s_4 has discount 0, so nothing is bootstrapped. Truncation, by the environment or by
    `reset`: s_4 keeps the discount that came with it, and its observation is the true last one, to
    bootstrap from. In both cases, `pad` repeats that observation and is 0 elsewhere, including the mask.
    With a layout of variable length `pad` is not stored: items end with s_4, and the layout's `unpack`
    pads them the same way.

    `at_end` decides which sequences are written when the episode ends. For 6 steps, T = 3 and period 2,
    after the sequences of steps 1 2 3 and 3 4 5:

        pad_every_start      5 6 0        one for each remaining start, more with period 1
        write_short          5 6          at most one, and none if every step is in a sequence
        shift_back           4 5 6
        drop_short           none

    With a layout that has a `burn_in`, an item also has that many rows before its first, and padding where
    the episode began later. Every step is then still one of the T of some item, in short episodes too:
    the drawing's items with `burn_in` 1, whose first step is not learned from

        first s_0 s_1 s_2 s_3                  (0) 1 1 1
              s_0 s_1 s_2 s_3 s_4              (1) 1 1 1
                  s_1 s_2 s_3 s_4 pad          (1) 1 1 0
                      s_2 s_3 s_4 pad pad      (1) 1 0 0

    and with a layout that stores recurrent states, each item has the one that the policy recorded before
    the item's first row, or 0 where no action was chosen there.

    `ContinuingSequenceAdder` continues with the next episode instead.

    Items start at steps 0, period, 2 * period, ...: with period 1 every transition is the first of
    exactly one item. No item continues into another episode.
    """

    def __init__(
        self,
        *,
        client: replay.ReplayClient,
        table: str | Mapping[str, base.Priority],
        layout: layouts.TrajectoryLayout,
        period: int,
        at_end: AtEnd = pad_every_start,
        priority: base.Priority = 1.0,
    ) -> None:
        """Initialises the adder. The client is not used before the first episode.

        Args:
            client: The client of the store that holds the tables.
            table: The name of a table, or the names of several with the priority of items in each. The
                tables must have the layout's signature.
            layout: The layout of trajectories in replay; it sets T and whether items may be shorter.
            period: The number of steps between the starts of items, in [1, T].
            at_end: The function that chooses which sequences are written when an episode ends.
            priority: The priority of each new item, if `table` is one name.

        Raises:
            ValueError: The period is out of range, a priority is negative, or `write_short` is used with a
                layout of fixed length.
        """
        if at_end is write_short and not layout.variable_length:
            raise ValueError(
                "`layout` must be of variable length for `write_short`, got one of fixed length. Make it "
                "with `variable_length=True`, or use another `at_end`, such as `pad_every_start`."
            )
        if not 1 <= period <= layout.sequence_length:
            raise ValueError(
                f"`period` must be in [1, {layout.sequence_length}], the sequence length, got {period}. "
                "A longer one loses the steps between sequences. Lower it, or lengthen the sequences."
            )
        super().__init__(
            client=client,
            table=table,
            priority=priority,
            signature=layout.signature,
            max_window=layout.sequence_length + 1 + layout.num_leading_rows,
            narrow_columns=layout.state_columns,
        )
        self._layout = layout
        self._length = layout.sequence_length
        self._period = period
        self._at_end = at_end
        self._rows: collections.deque[packing.Rows] = collections.deque(maxlen=self._max_window)  # newest
        # The recurrent states before the rows, except before the newest, where no action was chosen yet.
        self._states: collections.deque[packing.Rows] = collections.deque(
            maxlen=layout.burn_in + layout.sequence_length
        )
        self._begin()

    def _begin(self) -> None:
        """Starts to count rows from 0."""
        self._num_rows = 0  # written, including padding
        self._num_items = 0  # and so the rows of states
        self._last_step = 0  # the row of the newest step that happened, hence the number of steps
        self._next_start = 0  # the row at which the next item starts
        self._ending: list[int] | None = None  # the rows at which the items start that end with the episode

    def write_first(self, writer: replay.Writer, timestep: dm_env.TimeStep) -> None:
        rows = self._layout.first(timestep.observation)
        self._begin()
        self._lead(writer, rows)
        self._append(writer, rows)

    def write_step(self, writer: replay.Writer, step: base.Step) -> None:
        self._add_row(writer, self._pack(step), happened=True, state=self._layout.state(step.extras))

    def write_end(self, writer: replay.Writer) -> None:
        if self._ending is None:
            self._ending = []  # In case `at_end` fails: called again, it would fail again.
            try:
                self._ending = self._ask_at_end()
            except Exception:
                writer.flush()
                raise
        while self._ending:
            start = self._ending[0]
            while self._num_rows <= start + self._length and not self._layout.variable_length:
                self._append(writer, self._layout.padding(self._rows[-1]))
            num_rows = self._num_rows - start
            newest = list(self._rows)[-(num_rows + self._layout.num_leading_rows) :]
            state = self._states[1 - self._layout.burn_in - num_rows]
            item = functools.partial(self._layout.item, newest, state)
            priorities = self.priorities_of(item)
            del self._ending[0]
            self._create_item(writer, start, num_rows, state, priorities)
        writer.end_episode()

    def _add_row(
        self, writer: replay.Writer, rows: packing.Rows, happened: bool, state: packing.Rows | None = None
    ) -> None:
        """Appends a row and writes the item that it completes, or raises an error and changes nothing.

        Args:
            writer: The writer to use.
            rows: The row of each column.
            happened: Whether a step led to this row. An item in which no step happened is not written.
            state: The recurrent state before that step, or None if no action led to this row.
        """
        start = self._next_start
        last_step = self._num_rows if happened else self._last_step
        is_full = self._num_rows == start + self._length
        is_due = is_full and last_step > start
        priorities: Mapping[str, float] = {}
        first_state: packing.Rows = {}
        if is_due:
            states = [*self._states, self._layout.no_state if state is None else state]
            first_state = states[-self._layout.burn_in - self._length]
            priorities = self.priorities_of(
                lambda: self._layout.item([*self._rows, rows][-self._max_window :], first_state)
            )
        self._append(writer, rows, state)
        self._last_step = last_step
        if is_full:
            self._next_start += self._period
        if is_due:
            self._create_item(writer, start, None, first_state, priorities)

    def _pack(self, step: base.Step) -> packing.Rows:
        rows = self._layout.step(*step)
        self._layout.check_stack(step.next_timestep.observation, self._rows)
        return rows

    def _lead(self, writer: replay.Writer, rows: packing.Rows) -> None:
        """Writes the leading rows before the first one, for items that start there."""
        for _ in range(self._layout.num_leading_rows):
            writer.append(rows)
            self._rows.append(rows)
            self._states.append(self._layout.no_state)

    def _append(self, writer: replay.Writer, rows: packing.Rows, state: packing.Rows | None = None) -> None:
        writer.append(rows)
        self._rows.append(rows)
        self._states.append(self._layout.no_state if state is None else state)
        self._num_rows += 1

    def _create_item(
        self,
        writer: replay.Writer,
        start: int,
        num_rows: int | None,
        state: packing.Rows,
        priorities: Mapping[str, float],
    ) -> None:
        if state:
            writer.append(state)
        self._num_items += 1
        self.create_items(writer, self._layout.fields(start, num_rows, self._num_items - 1), priorities)

    def _ask_at_end(self) -> list[int]:
        """Returns the steps that `at_end` returns.

        Raises:
            ValueError: `at_end` returned invalid steps.
        """
        if self._last_step == 0:
            return []
        episode = EndedEpisode(self._last_step, self._next_start, self._length, self._period)
        answer = self._at_end(episode)
        if not isinstance(answer, Iterable):
            raise ValueError(_describe_wrong_end(episode, repr(answer)))
        starts: list[int] = []
        for start in answer:  # Not converted to a list, since a generator may never end.
            is_whole = isinstance(start, int | np.integer) and not isinstance(start, bool)
            if not is_whole or not episode.first_start <= start < self._last_step:
                raise ValueError(_describe_wrong_end(episode, f"{start}"))
            if starts and start <= starts[-1]:
                raise ValueError(_describe_wrong_end(episode, f"{start} after {starts[-1]}"))
            starts.append(int(start))
        return starts


def _describe_wrong_end(episode: EndedEpisode, found: str) -> str:
    return (
        "`at_end` must return the steps at which sequences start, in ascending order and from "
        f"{episode.first_start} to {episode.num_steps - 1} where an episode has {episode.num_steps} steps, "
        f"got {found}. Correct the function; the steps that fill no sequence are lost."
    )
