"""The interface of replay: the guarantees that every store gives to writers and readers.

A *step* of an episode is stored as one row in each of a few columns. An *item* is the unit of sampling: for
each of its fields, a window of consecutive rows of one column. Rows are stored once, however many items
share them.

    column "float32"   row 0 | row 1 | row 2 | row 3 | ...        (one episode)
    item A, field "step"     [ start 0, length 3 ]
    item B, field "step"             [ start 1, length 3 ]
"""

import abc
import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np

from minerva_acme import constraints, core
from minerva_acme.replay.selectors import Fifo, Selector, Uniform


class ColumnSpec(NamedTuple):
    """The shape and dtype of one row of a column."""

    shape: tuple[int, ...]
    dtype: np.dtype


class FieldSpec(NamedTuple):
    """A field of an item: `length` consecutive rows of `column`."""

    column: str
    length: constraints.Count  # in rows
    variable: bool = False  # items may have fewer rows, but at least one; `length` is the maximum


class Window(NamedTuple):
    """The rows `start` to `start + length` of a column, counted from the start of the episode."""

    column: str
    start: int
    length: int


class ItemSignature(NamedTuple):
    """The shapes and dtypes of a table: its columns, and the fields of its items."""

    columns: Mapping[str, ColumnSpec]
    fields: Mapping[str, FieldSpec]


TIMEOUT_SECONDS = 60.0
"""The default time for which a rate limiter may hold a writer back."""


class MinSize(NamedTuple):
    """A rate limiter that lets sampling wait until the table holds `min_size` items. Inserts never wait."""

    min_size: constraints.Count  # in items


class SampleToInsertRatio(NamedTuple):
    """A rate limiter that keeps samples per insert near a ratio, by making the faster side wait.

    It is for separate actor and learner processes. A single thread that both acts and learns would wait
    for itself.
    """

    samples_per_insert: Annotated[
        float, constraints.Constraint("finite and > 0", lambda value: 0.0 < value < math.inf)
    ]
    min_size: constraints.Count  # in items
    error_buffer: float  # in samples; at least a few batches, since prefetched samples count as taken


class Queue(NamedTuple):
    """A rate limiter under which inserts wait while `capacity` items are stored.

    With `max_times_sampled=1`, the table is a queue.
    """

    capacity: int  # in items


RateLimiter: TypeAlias = MinSize | SampleToInsertRatio | Queue
"""Says when items of a table may be sampled or inserted; a builder's `make_rate_limiter` returns one."""


class Ring(NamedTuple):
    """The shape of a table whose rows are steps of B environments at once, in tensors.

    A writer of batches appends one row of all environments in each step, and the newest row overwrites the
    oldest. Nothing is written for an item: it is a window of L rows of one environment, L the longest of its
    fields. It can be sampled once its L rows are written, or once `end_episodes` was called.
    """

    num_environments: constraints.Count  # B
    period: constraints.Count = 1
    by_episode: bool = True
    """Whether items belong to one episode: they start at every `period`-th step of it, as the writer marks
    them, and what a window holds after its episode's end is left to the reader. Otherwise they start at every
    `period`-th row, across the ends of episodes, and each is sampled once, in order."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableConfig:
    """A table of items."""

    name: str
    signature: ItemSignature
    max_size: Annotated[
        int,
        constraints.Constraint(
            "a whole number of items >= 1", lambda value: isinstance(value, int) and value >= 1
        ),
    ]  # when it is full, the remover chooses which item to drop
    rate_limiter: RateLimiter
    sampler: Selector = dataclasses.field(default_factory=Uniform)
    remover: Selector = dataclasses.field(default_factory=Fifo)
    max_times_sampled: constraints.Natural = 0  # 0 for no limit
    contents: Mapping[str, str | float] = dataclasses.field(default_factory=dict)
    """Settings that change the numbers in the items but not their shapes, such as `n_step` and `discount`.
    They are stored with the table and compared when it is restored or checked."""
    ring: Ring | None = None
    """The shape of a table of batched steps, in memory; None for items that writers create one by one."""

    def __post_init__(self) -> None:
        constraints.check_fields(self)
        for role, selector in (("sampler", self.sampler), ("remover", self.remover)):
            _require_selector(role, selector)
        if not self.name:
            raise ValueError("`name` of a table must not be empty.")
        for name, field in self.signature.fields.items():
            constraints.check_fields(field, f" of field '{name}' of table '{self.name}'")
            if field.column not in self.signature.columns:
                raise ValueError(
                    f"Field '{name}' of table '{self.name}' must be of a column of its signature, "
                    f"{', '.join(map(repr, self.signature.columns))}, got '{field.column}'."
                )
        self.sampler.check(self, "sampler")
        self.remover.check(self, "remover")
        limiter = self.rate_limiter
        if isinstance(limiter, MinSize | SampleToInsertRatio) and limiter.min_size > self.max_size:
            raise ValueError(
                f"Table '{self.name}' could never be sampled: `min_size` {limiter.min_size} is above "
                f"`max_size` {self.max_size}. Lower the first or raise the second."
            )
        if isinstance(limiter, SampleToInsertRatio):
            # A row of a ring may insert an item of each environment.
            most_at_once = self.ring.num_environments if self.ring is not None else 1
            least = max(1.0, limiter.samples_per_insert * most_at_once)
            if limiter.error_buffer < least:
                raise ValueError(
                    f"`error_buffer` must be >= {least:g} samples, or both sides of table '{self.name}' "
                    f"wait for each other, got {limiter.error_buffer:g}."
                )
        if isinstance(limiter, Queue) and not 1 <= limiter.capacity <= self.max_size:
            raise ValueError(
                f"`capacity` of a queue must be >= 1 item and <= `max_size` ({self.max_size}), or unread "
                f"items are dropped, got {limiter.capacity}."
            )
        if self.ring is not None:
            self._check_ring(self.ring)

    def _check_ring(self, ring: Ring) -> None:
        if self.sampler.has_priorities or self.remover.has_priorities:
            raise ValueError(
                f"Table '{self.name}' holds batched steps, whose items have no priorities, got "
                f"{self.sampler} and {self.remover}. Sample uniformly (`prioritized` False, "
                "`replay_fading` 1), or play environments that are not batched."
            )
        found = (type(self.sampler).__name__, type(self.remover).__name__, self.max_times_sampled)
        expected = ("Uniform", "Fifo", 0) if ring.by_episode else ("Fifo", "Fifo", 1)
        if found != expected:
            raise ValueError(
                f"Table '{self.name}' holds batched steps with `by_episode` {ring.by_episode}, so "
                f"its sampler, remover and `max_times_sampled` must be {expected}, got {found}."
            )
        if not ring.by_episode and not isinstance(self.rate_limiter, Queue):
            raise ValueError(
                f"Table '{self.name}' holds batched steps that are sampled once, so its rate limiter must be "
                f"a `Queue`, got {self.rate_limiter}."
            )
        if any(field.variable for field in self.signature.fields.values()):
            raise ValueError(f"The fields of table '{self.name}', a ring, must have fixed lengths.")


def _require_selector(role: str, value: Any) -> None:
    """Raises ValueError unless a value is a selector."""
    if not isinstance(value, Selector):
        is_class = isinstance(value, type) and issubclass(value, Selector)
        way_out = f"{value.__name__}(...)" if is_class else "replay.Uniform(), for example"
        raise ValueError(f"`{role}` must be a `replay.Selector`, got {value!r}. Write {way_out}.")


class TableInfo(NamedTuple):
    """The state of a table."""

    name: str
    size: int  # items stored
    max_size: int
    inserted: int  # items ever inserted
    sampled: int  # samples ever taken, including prefetched ones
    min_size: int  # items that must be stored before sampling starts


NO_KEY = np.iinfo(np.uint64).max
"""The key of all items of a `Ring`, which no priority can be set for."""


class SampleInfo(NamedTuple):
    """The store's data about B sampled items.

    Items of a `Ring` are not told apart: their `key` is `NO_KEY`, and `times_sampled` is 0, for unknown.
    """

    key: np.ndarray  # [B] uint64
    probability: np.ndarray  # [B] float64
    table_size: np.ndarray  # [B] int64
    priority: np.ndarray  # [B] float64
    times_sampled: np.ndarray  # [B] int32


class ReplayError(RuntimeError):
    """Raised when the store cannot do what it was asked to do. The message says why, and what to do."""


class ReplayMismatch(ReplayError):
    """Raised when a whole checkpoint is of another store or other tables. The message says how."""


class ReplayTimeout(ReplayError):
    """Raised when the store did not answer in time or has too few items. The message says which."""

    def __init__(self, message: str, *, held_back: bool = False) -> None:
        """Initialises the error.

        Args:
            message: The message.
            held_back: Whether the reason for the wait is a table's rate limiter.
        """
        super().__init__(message)
        self.held_back = held_back


class ReplaySilence(ReplayTimeout):
    """Raised when the server did not answer for so long that it counts as gone."""


class ReplayStopped(ReplayTimeout):
    """Raised when a request to stop ended a wait; see `waiting.rules`."""


class ReplayDeadlock(ReplayTimeout):
    """Raised when a wait can never end, since nothing else writes or samples; see `waiting.rules`."""


def check_timeout(timeout_seconds: float) -> None:
    """Checks a time limit.

    Raises:
        ValueError: The limit is not above 0.
    """
    if timeout_seconds <= 0:
        raise ValueError(f"`timeout_seconds` must be > 0, got {timeout_seconds}.")


class _Resource(core.Closeable):
    @abc.abstractmethod
    def close(self) -> None:
        """Releases the resource within a second. It may be called more than once."""


class Writer(_Resource):
    """A writer of rows and items, one episode after another. It is used by one thread.

    Rows are not checked: the adder that packs them has checked their values.
    """

    @abc.abstractmethod
    def append(self, rows: Mapping[str, np.ndarray]) -> None:
        """Appends a row to each named column. Other columns get no row."""

    @abc.abstractmethod
    def create_item(self, table: str, priority: float, fields: Mapping[str, Window]) -> None:
        """Creates an item from rows already appended in this episode.

        Waits, up to the writer's time limit, while the rate limiter holds inserts back or the server is slow.

        Raises:
            ReplayTimeout: The wait exceeded the writer's limit. The item stays pending and is sent
                once the server takes it.
        """

    @abc.abstractmethod
    def flush(self) -> None:
        """Returns once every created item is in its table.

        Raises:
            ReplayTimeout: The wait exceeded the writer's limit; nothing is dropped.
        """

    @abc.abstractmethod
    def end_episode(self) -> None:
        """Flushes and starts a new history: windows count from 0 again."""


class BatchedWriter(_Resource):
    """A writer of a table that is a `Ring`. It is used by one thread."""

    @abc.abstractmethod
    def append(self, rows: Mapping[str, Any], starts: Any = None) -> None:
        """Appends one row of every environment, and overwrites the oldest one of a full table.

        Waits, up to the writer's time limit, while the rate limiter holds inserts back.

        Args:
            rows: For each column a tensor, [B, *row shape], on the table's device. No number is read.
            starts: Where an item starts with this row, [B] bool. None if the ring is not `by_episode`.

        Raises:
            ReplayTimeout: The wait exceeded the writer's limit; nothing was written.
            ReplayError: A tensor has another shape, dtype or device, or a column is missing.
        """

    @abc.abstractmethod
    def end_episodes(self, **marks: float) -> None:
        """Ends all episodes with the newest row: all of their items can be sampled now.

        Args:
            **marks: The columns of the newest row to set to a number, so that a reader finds the ends.
        """


class Sampler(_Resource):
    """A sampler of items from one table."""

    @property
    def prefetch(self) -> int:
        """The recommended number of batches to sample ahead in another thread; 0 if that does not help."""
        return 2

    @abc.abstractmethod
    def sample_batch(
        self, batch_size: int, timeout_seconds: float | None = None
    ) -> tuple[SampleInfo, dict[str, Any]]:
        """Returns B items, each field stacked to `[B, length, *row shape]` in a new array.

        If the store keeps rows on a device, the fields are PyTorch tensors on that device.

        The `length` of a variable field is the length of the longest item in the batch; shorter items are
        padded with rows of 0.

        Waits until the rate limiter releases B items. Calling `close` from another thread ends the wait.

        Raises:
            ReplayTimeout: `timeout_seconds` passed first. The message says what the call waited for; no
                item is lost.
            ReplayError: The sampler is closed or the server is gone.
        """


class ReplayClient(_Resource):
    """A client that reads and writes a store, in this process or another."""

    @abc.abstractmethod
    def writer(self, max_window: int, narrow_columns: Collection[str] = ()) -> Writer:
        """Returns a writer whose windows reach at most `max_window` rows back.

        Windows of `narrow_columns` hold one row, the newest: such rows are neither kept nor sent together.
        """

    def batched_writer(self, table: str) -> BatchedWriter:
        """Returns a writer of batched steps. Only the store in memory has tables of them.

        Raises:
            ReplayError: The table is not a `Ring`, or there is no such table.
        """
        raise ReplayError(
            f"Table '{table}' must be in the memory of this process to take batched steps, but "
            f"{type(self).__name__} cannot. Use replay='memory', --replay memory on the command line."
        )

    @abc.abstractmethod
    def sampler(self, table: str) -> Sampler:
        """Returns a sampler of one table.

        Raises:
            ReplayError: There is no such table; the message lists the existing ones.
        """

    @abc.abstractmethod
    def table_info(self, table: str) -> TableInfo:
        """Returns the state of a table.

        Raises:
            ReplayTimeout: The server did not answer.
            ReplayError: There is no such table; the message lists the existing ones.
        """

    def check_table(self, config: TableConfig) -> None:
        """Checks that a table matches a config. The default checks nothing.

        Raises:
            ReplayError: There is no such table, or it differs; the message says how.
        """

    def memory_bytes(self) -> int | None:
        """Returns the memory that rows and items use, in bytes; None if it is unknown."""
        return None

    @abc.abstractmethod
    def update_priorities(self, table: str, keys: np.ndarray, priorities: np.ndarray) -> None:
        """Sets the priorities of items, which are identified by `SampleInfo.key`.

        The new priorities affect later draws, but not batches that a dataset or a store has drawn ahead.
        A `Prioritized` selector raises them to the power of its exponent. An item of priority 0 is drawn only
        if all items have priority 0. Keys of items that have left the table are ignored. If an item gets
        several priorities, the last one counts.

        Args:
            table: The table's name.
            keys: The keys of the items, uint64 [B].
            priorities: The new priorities, finite and >= 0, float64 [B].

        Raises:
            ValueError: A priority is invalid, or the numbers of keys and priorities differ.
            ReplayError: There is no such table, or the server is gone.
        """

    @abc.abstractmethod
    def checkpoint(self) -> str:
        """Writes the whole store into the server's checkpoint directory and returns the path."""


class ReplayServer(_Resource):
    """A server that holds tables."""

    @property
    @abc.abstractmethod
    def address(self) -> str:
        """The address at which other processes reach the server."""

    @abc.abstractmethod
    def client(self, timeout_seconds: float = TIMEOUT_SECONDS) -> ReplayClient:
        """Returns a client in this process.

        Args:
            timeout_seconds: The time for which a rate limiter may hold its writers back.
        """
