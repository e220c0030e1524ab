"""The base class of adders: the order of calls, priorities, and a writer that is made when first needed."""

import abc
import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeAlias

import dm_env

from minerva_acme import core, types
from minerva_acme.replay import base as replay
from minerva_acme.replay import messages

Priority: TypeAlias = float | Callable[[Any], float]
"""The priority of an item, or a function that takes the item and returns its priority.

The item has the type that the learner gets, such as `Transition` or `Trajectory`, with arrays and without
the batch axis. If the function raises an error or returns an invalid priority, the step that completes the
item is rejected. If that is the last step of its episode and already added, the episode stays open and
`reset` tries again.
"""


class Step(NamedTuple):
    """The arguments of `add`."""

    action: types.NestedArray
    next_timestep: dm_env.TimeStep
    extras: types.NestedArray


class BaseAdder(core.Adder):
    """The base class of adders. It enforces the order of calls; subclasses define what each call writes.

    To write your own adder, override these methods, which only this class calls, and leave the methods of
    `core.Adder` unchanged:

        write_first        an episode begins
        write_step         a step of the episode, including the LAST one
        write_end          the episode has ended, by LAST or by `reset`
        write_rest         the adder closes; only needed if data is kept beyond an episode

    Each method appends steps with `writer.append`, and calls `create_items` for each complete item, with
    the priorities that `priorities_of` returns. The layout's `first` and `step` make the checks that
    `core.Adder` promises, so call them before anything is written or stored.
    """

    def __init__(
        self,
        *,
        client: replay.ReplayClient,
        table: str | Mapping[str, Priority],
        priority: Priority,
        signature: replay.ItemSignature,
        max_window: int,
        narrow_columns: Collection[str] = (),
    ) -> None:
        """Makes an adder; its writer is made when the first episode begins.

        Args:
            client: The client of the store to write to.
            table: The name of a table; or the names of several, each with the priority of its items.
            priority: The priority of each item, if `table` is one name.
            signature: The signature that the tables must have; see `signature`.
            max_window: The number of rows that the longest item spans, all of which the writer keeps.
            narrow_columns: The columns of which an item has only the newest row.
        """
        priorities = {table: priority} if isinstance(table, str) else dict(table)
        if not priorities:
            raise ValueError("`table` must be a table's name, or names and priorities, got none.")
        constants = {name: value for name, value in priorities.items() if not callable(value)}
        for name, value in constants.items():
            messages.check_priority(name, value)
        self._client = client
        self._priorities = priorities
        self._constants = constants if len(constants) == len(priorities) else None
        self._signature = signature
        self._max_window = max_window
        self._narrow_columns = narrow_columns
        self._writer: replay.Writer | None = None
        self._num_inserted = 0
        self._is_open = False
        self._has_ended = False  # though still open, since not all of its items are written
        self._is_closed = False

    def signature(self) -> replay.ItemSignature:
        """Returns the signature that the tables must have: the columns and fields of the written items."""
        return self._signature

    @property
    def num_inserted(self) -> int:
        """The number of items created since construction. An item in two tables counts twice."""
        return self._num_inserted

    def add_first(self, timestep: dm_env.TimeStep) -> None:
        if self._is_closed:
            raise ValueError("The adder is closed. Make a new one.")
        if not timestep.first():
            raise ValueError(
                f"`timestep` must be FIRST, got {timestep.step_type.name}. Begin an episode with what the "
                "environment's `reset` returns."
            )
        if self._is_open:
            raise ValueError(
                "An episode is still open. Call `add` with its LAST timestep, or `reset` to end it now."
            )
        if self._writer is None:
            self._writer = self._client.writer(self._max_window, self._narrow_columns)
        self.write_first(self._writer, timestep)
        self._is_open = True

    def add(
        self,
        action: types.NestedArray,
        next_timestep: dm_env.TimeStep,
        extras: types.NestedArray = (),
    ) -> None:
        if not self._is_open or self._writer is None:
            raise ValueError("No episode is open. Call `add_first` with a FIRST timestep before `add`.")
        if self._has_ended:
            raise ValueError("The episode has ended. Call `reset`, which writes its remaining items.")
        if next_timestep.first():
            raise ValueError(
                "`next_timestep` must be MID or LAST, got FIRST. Pass an episode's first to `add_first`."
            )
        try:
            self.write_step(self._writer, Step(action, next_timestep, extras))
        except replay.ReplayTimeout:  # The step is added, and its item is sent later.
            self._has_ended = next_timestep.last()
            raise
        if next_timestep.last():
            self._has_ended = True
            self.reset()

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def reset(self) -> None:
        if self._is_open and self._writer is not None:
            self.write_end(self._writer)
            self._is_open = self._has_ended = False

    def close(self) -> None:
        self._is_closed = True
        if self._writer is None:
            return
        try:
            with contextlib.suppress(replay.ReplayStopped):  # What is lost then, the writer says.
                self.reset()
                self.write_rest(self._writer)
                self._writer.flush()
        finally:
            self._writer.close()
            self._writer = None
            self._is_open = self._has_ended = False

    def priorities_of(self, make_item: Callable[[], Any]) -> dict[str, float]:
        """Returns the priority of an item in each table.

        Args:
            make_item: The function that makes the item as a learner gets it; called only if a priority is a
                function.

        Raises:
            ValueError: A function returned an invalid priority.
        """
        if self._constants is not None:  # the usual case
            return self._constants
        priorities, item = {}, None
        for name, priority in self._priorities.items():
            if callable(priority):
                item = make_item() if item is None else item
                priority = float(priority(item))
                messages.check_priority(name, priority)
            priorities[name] = priority
        return priorities

    def create_items(
        self, writer: replay.Writer, fields: dict[str, replay.Window], priorities: Mapping[str, float]
    ) -> None:
        """Creates an item in every table. If one table holds it back, the others still get it.

        Args:
            writer: The writer that the item's rows were appended to.
            fields: The item's fields, each a window of rows, as the layout's `fields` returns them.
            priorities: The item's priority in each table, as `priorities_of` returns it.

        Raises:
            ReplayTimeout: A table held the item back; it is sent later.
        """
        timeout = None
        for table, priority in priorities.items():
            # Counted first, since an item is sent later if the writer gives up waiting.
            self._num_inserted += 1
            try:
                writer.create_item(table, priority, fields)
            except replay.ReplayTimeout as error:
                timeout = timeout or error
        if timeout is not None:
            raise timeout

    @abc.abstractmethod
    def write_first(self, writer: replay.Writer, timestep: dm_env.TimeStep) -> None:
        """Begins an episode, or raises an error and changes nothing."""

    @abc.abstractmethod
    def write_step(self, writer: replay.Writer, step: Step) -> None:
        """Writes a step and the items that it completes, or raises an error and changes nothing."""

    @abc.abstractmethod
    def write_end(self, writer: replay.Writer) -> None:
        """Writes the items that end with the episode, and ends it. Called again if it raised an error."""

    def write_rest(self, writer: replay.Writer) -> None:
        """Writes the data that was kept for another episode, before the adder is closed."""
        del writer
