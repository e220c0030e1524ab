"""A table of batched steps: a ring of rows of B environments, in tensors on one device.

Shapes: R rows, B environments, N sampled items, L rows of an item.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from minerva_acme.replay import base, messages, waiting
from minerva_acme.replay.memory.rows import check_array
from minerva_acme.replay.memory.table import AnyTable, Batch, Tables

_NUMBERS = ("_num_rows", "_cut", "inserted", "sampled")  # attributes of a table
_STARTS = "starts"  # the array of a checkpoint beside those of the columns


class RingTable(AnyTable):
    """A table whose newest row overwrites its oldest. It never reads a number from its device.

        row             5    6    2    3    4      R = 5: the rows 0 and 1 are overwritten
        environment 0   a5 | b0   a2   a3   a4     "|": an episode has ended
        environment 1   d1   d2   c2 | c3   d0

    With items of L = 3 rows, those that start in the rows 2, 3 and 4 can be sampled; those of rows 5 and 6
    once two more rows are written, or all episodes are ended. Which rows can be sampled is thus known on the
    host. Where in these rows items start is marked on the device: each row has the running count of its
    starts, from which a random number is turned into the place of an item, with equal probability of each.

    If an item does not start in every row and environment, the counts of items are estimates: one for every
    `period` steps.
    """

    def __init__(
        self, config: base.TableConfig, generator: np.random.Generator, device: torch.device | str
    ) -> None:
        """Makes an empty table, and reserves its memory.

        Args:
            config: The table's config, with a `ring`.
            generator: The generator of the table's draws.
            device: The device of all rows.
        """
        super().__init__(config)
        assert config.ring is not None
        self._ring = config.ring
        self._generator = generator
        self._device = torch.device(device)
        signature, num_environments = config.signature, self._ring.num_environments
        self._length = max(field.length for field in signature.fields.values())
        if self._ring.by_episode:
            starting_rows = -(-config.max_size * self._ring.period // num_environments)
        else:  # the items of all environments start in the same row, which is kept for the last of them
            starting_rows = -(-config.max_size // num_environments) * self._ring.period
        # Enough that an item starts in them, even if an episode begins in the call after a reset.
        self._starting_rows = max(starting_rows, self._ring.period + 1)
        self._capacity = self._starting_rows + self._length - 1  # R
        self._columns = {
            name: torch.zeros(
                (self._capacity, num_environments, *column.shape),
                dtype=torch.from_numpy(np.empty(0, column.dtype)).dtype,
                device=self._device,
            )
            for name, column in signature.columns.items()
        }
        # [R, B] the running count over the environments of the items that start in a row
        self._counts = torch.zeros((self._capacity, num_environments), dtype=torch.int32, device=self._device)
        self._offsets = torch.arange(self._length, device=self._device)
        self._num_rows = 0  # ever written
        self._cut = 0  # the row after the newest one with which all episodes were ended

    @property
    def nbytes(self) -> int:
        parts = [*self._columns.values(), self._counts]
        return sum(part.numel() * part.element_size() for part in parts)

    def can_append(self) -> bool:
        """Returns whether the rate limiter allows the items that one more row completes."""
        return self.allows_inserting(self._num_inserted(self._num_rows + 1))

    def append(self, rows: Mapping[str, torch.Tensor], starts: torch.Tensor | None) -> None:
        """Writes a row of every environment; see `base.BatchedWriter`."""
        if rows.keys() != self._columns.keys() or (starts is None) == self._ring.by_episode:
            raise base.ReplayError(
                f"A row of table '{self.config.name}' must have the columns {sorted(self._columns)}"
                f"{' and `starts`' if self._ring.by_episode else ''}, got {sorted(rows)}"
                f"{'' if starts is None else ' and `starts`'}."
            )
        for name, column in self._columns.items():
            row = rows[name]
            if row.shape != column.shape[1:] or row.dtype != column.dtype or row.device != column.device:
                raise base.ReplayError(
                    f"A row of column '{name}' must be {column.dtype} {list(column.shape[1:])} on "
                    f"{column.device}, got {row.dtype} {list(row.shape)} on {row.device}."
                )
        place = self._num_rows % self._capacity
        for name, column in self._columns.items():
            column[place] = rows[name]
        if starts is not None:
            self._counts[place] = starts.cumsum(0)
        self._num_rows += 1
        self._count()

    def end_episodes(self, marks: Mapping[str, float]) -> None:
        """Ends all episodes with the newest row; see `base.BatchedWriter`."""
        if self._num_rows == 0:
            return
        for name, value in marks.items():
            self._columns[name][(self._num_rows - 1) % self._capacity] = value
        if self._ring.by_episode:
            self._cut = self._num_rows
        self._count()

    def draw(self, wanted: int) -> Batch | None:
        count = min(wanted, self.samples_allowed())
        if not count:
            return None
        info = base.SampleInfo(
            key=np.full(count, base.NO_KEY),
            probability=np.full(count, 1.0 / self.size),
            table_size=np.full(count, self.size),
            priority=np.ones(count),
            times_sampled=np.zeros(count, np.int32),
        )
        row, environment = self._draw_starts(count) if self._ring.by_episode else self._next_starts(count)
        self.sampled += count
        self._count()
        rows = (row[:, None] + self._offsets) % self._capacity  # [N, L]
        places = rows * self._ring.num_environments + environment[:, None]
        fields = {}
        for name, field in self.config.signature.fields.items():
            column = self._columns[field.column].flatten(0, 1)
            fields[name] = column[places[:, : field.length]]
        return Batch(info, fields, {})

    def save(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        num_kept = min(self._num_rows, self._capacity)
        parts = {**self._columns, _STARTS: self._counts}
        arrays = {name: part[:num_kept].cpu().numpy() for name, part in parts.items()}
        return numbers | {"generator": self._generator.bit_generator.state}, arrays

    def restore(self, numbers: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        for name in _NUMBERS:
            if type(numbers[name]) is not int or numbers[name] < 0:
                raise ValueError(f"`{name}` must be a count, got {numbers[name]!r}")
        num_rows, cut = numbers["_num_rows"], numbers["_cut"]
        if cut > num_rows or (cut and not self._ring.by_episode):
            raise ValueError(f"its numbers are inconsistent: {dict(numbers)}")
        parts = {**self._columns, _STARTS: self._counts}
        if arrays.keys() != parts.keys():
            raise ValueError(f"a ring must have the arrays {sorted(parts)}, got {sorted(arrays)}")
        num_kept = min(num_rows, self._capacity)
        for name, part in parts.items():
            dtype = np.dtype(np.int32)
            if name != _STARTS:
                dtype = np.dtype(self.config.signature.columns[name].dtype)
            check_array(name, arrays[name], dtype, (num_kept, *part.shape[1:]))
        steps = np.diff(arrays[_STARTS], axis=1, prepend=0)
        if self._ring.by_episode and num_kept and not np.isin(steps, (0, 1)).all():
            raise ValueError("the counts of starts in a row must grow by 0 or 1")
        for name, part in parts.items():
            part[:num_kept] = torch.from_numpy(arrays[name]).to(self._device)
        for name in _NUMBERS:
            setattr(self, name, numbers[name])
        self._generator.bit_generator.state = numbers["generator"]
        self._count()

    def _count(self) -> None:
        """Updates the numbers of items from those of rows."""
        self.inserted = self._num_inserted(self._num_rows)
        if self._ring.by_episode:
            first, end = self._sampleable()
            self.size = -(-(end - first) // self._ring.period) * self._ring.num_environments
        else:
            self.size = self.inserted - self.sampled

    def _num_inserted(self, num_rows: int) -> int:
        """Returns the number of items that are complete once so many rows are written."""
        end = max(num_rows - self._length + 1, self._cut)
        return -(-end // self._ring.period) * self._ring.num_environments

    def _sampleable(self) -> tuple[int, int]:
        """Returns the first row in which an item starts that can be sampled, and the row after the last."""
        end = max(self._num_rows - self._length + 1, self._cut)
        return max(0, end - self._starting_rows), end

    def _draw_starts(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Draws the rows and environments in which N items start, [N] each, all with equal probability."""
        rows = torch.arange(*self._sampleable(), device=self._device) % self._capacity
        in_row = self._counts[rows, -1]
        up_to_row = in_row.cumsum(0)  # int64
        shares = torch.from_numpy(self._generator.random(count)).to(self._device, non_blocking=True)
        number = (shares * up_to_row[-1]).long().clamp(max=up_to_row[-1] - 1)
        index = torch.searchsorted(up_to_row, number, right=True)
        row = rows[index]
        number_in_row = number - (up_to_row[index] - in_row[index])
        environment = torch.searchsorted(self._counts[row], number_in_row.int()[:, None], right=True)
        return row, environment[:, 0]

    def _next_starts(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the rows and environments in which the oldest N items start that were not sampled."""
        number = torch.arange(self.sampled, self.sampled + count, device=self._device)
        num_environments = self._ring.num_environments
        row = number // num_environments * self._ring.period % self._capacity
        return row, number % num_environments


class RingWriter(base.BatchedWriter):
    """A writer of a ring."""

    def __init__(self, tables: Tables, table: AnyTable, timeout_seconds: float) -> None:
        """Makes a writer; see `ReplayClient.batched_writer`."""
        assert isinstance(table, RingTable)
        self._tables = tables
        self._table = table
        self._timeout_seconds = timeout_seconds
        self._is_closed = False

    def append(self, rows: Mapping[str, torch.Tensor], starts: torch.Tensor | None = None) -> None:
        tables = self._tables
        with tables.lock:
            self._check_open()
            if not self._table.can_append():
                wait = waiting.Wait(self._timeout_seconds)
                while not tables.wait(lambda: tables.is_closed or self._table.can_append(), wait.slice()):
                    wait.go_on(messages.inserting_waits(self._table.description()))
                self._check_open()
            self._table.append(rows, starts)
            tables.notify()

    def end_episodes(self, **marks: float) -> None:
        with self._tables.lock:
            self._check_open()
            self._table.end_episodes(marks)
            self._tables.notify()

    def close(self) -> None:
        self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise base.ReplayError(messages.WRITER_CLOSED)
        self._tables.check_open()
