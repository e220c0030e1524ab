"""Storage of a column's rows in memory, in pages that are reused when no item refers to them."""

import collections
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from minerva_acme.machine import memory
from minerva_acme.replay import base

_MAX_PAGE_BYTES = 1 << 20
_MIN_PAGE_ROWS, _MAX_PAGE_ROWS = 16, 256  # powers of 2
_MAX_ROWS = np.iinfo(np.int32).max  # items keep the number of their first row as an int32
_CHECKED_BYTES = 1 << 26  # smaller stores grow without a look at the free memory
_SLACK = 1.02  # the factor by which to exceed the pages that the items seen so far suggest


class RowStore:
    """The store of one column's rows, from all writers.

    A writer takes one page after another and fills it row by row. An item is a start and a length: its rows
    are consecutive, and continue in the next page that its writer took.

        page 0 (writer A)  | page 1 (writer B)  | page 2 (writer A)
        a0 a1 a2 a3 ... an | b0 b1 b2 b3 ... bn | an+1 an+2 ...
                      [==================== item =====]

    A page is free again once no writer can reach it and no item has rows in it. If no page is free, the
    store grows by half, or by less if the tables will not need that much.
    """

    def __init__(self, spec: base.ColumnSpec, fill: Callable[[], float], in_order: bool) -> None:
        """Makes an empty store. Nothing is allocated before the first row.

        Args:
            spec: The shape and dtype of a row.
            fill: The function that returns how full the tables of this column are, in (0, 1].
            in_order: Whether items are removed in the order in which they were inserted. Otherwise pages
                are small, since a single remaining item keeps a whole page.
        """
        self.spec = base.ColumnSpec(tuple(spec.shape), np.dtype(spec.dtype))
        self._row_bytes = max(1, int(np.prod(spec.shape)) * self.spec.dtype.itemsize)
        page_rows = min(max(_MAX_PAGE_BYTES // self._row_bytes, _MIN_PAGE_ROWS), _MAX_PAGE_ROWS)
        if not in_order:
            page_rows = _MIN_PAGE_ROWS
        self.shift = page_rows.bit_length() - 1
        self.page_rows = 1 << self.shift
        self._mask = self.page_rows - 1
        self._fill = fill
        self._holds: list[int] = []  # for each page, the number of items and writers that need it
        self.rows: Any = self.zeros((0, *self.spec.shape))
        self._next = np.empty(0, np.int32)  # for each page, the page that its writer took next
        self._free: collections.deque[int] = collections.deque()

    @property
    def nbytes(self) -> int:
        """The size of rows and pages in bytes."""
        return len(self._holds) * (self.page_rows * self._row_bytes + 16)

    def take_page(self, after: int | None) -> int:
        """Returns an unused page for a writer, as the successor of the page `after`."""
        if not self._free:
            self._grow()
        page = self._free.popleft()
        self._holds[page] = 1
        if after is not None:
            self._next[after] = page
        return page

    def release_page(self, page: int) -> None:
        """Releases one hold of a page."""
        self._holds[page] -= 1
        if not self._holds[page]:
            self._free.append(page)

    def hold(self, start: int, length: int) -> None:
        """Holds the pages of a window, so that they are not reused."""
        page = start >> self.shift
        self._holds[page] += 1
        for _ in range(((start & self._mask) + length - 1) >> self.shift):
            page = int(self._next[page])
            self._holds[page] += 1

    def release(self, start: int, length: int) -> None:
        """Releases one `hold` of a window."""
        page = start >> self.shift
        hops = ((start & self._mask) + length - 1) >> self.shift
        self._holds[page] -= 1
        if not self._holds[page]:
            self._free.append(page)
        for _ in range(hops):
            page = int(self._next[page])
            self.release_page(page)

    def gather(self, starts: np.ndarray, length: int, lengths: np.ndarray | None) -> Any:
        """Returns the rows of the windows that begin at `starts` [B], as a new `[B, length, *row shape]`.

        Args:
            starts: The place of each window's first row.
            length: The number of rows to return, at least that of the longest window.
            lengths: The number of rows in each window [B], padded with rows of 0; None if all have `length`.
        """
        places = self._places(starts, length)
        padding = None if lengths is None else np.arange(length) >= lengths[:, None]
        return self.take(places, padding)

    def save(self) -> dict[str, np.ndarray]:
        """Returns the rows and the order of the pages."""
        return {"rows": self.to_numpy(), "next": self._next}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Restores what `save` returned. The items' windows must be held next.

        Raises:
            ValueError: The arrays do not fit this store.
        """
        pages = len(state["next"])
        check_array("next", state["next"], np.dtype(np.int32), (pages,))
        check_array("rows", state["rows"], self.spec.dtype, (pages * self.page_rows, *self.spec.shape))
        self._resize(pages)
        self.rows[:] = state["rows"]
        self._next = state["next"].copy()

    def check_windows(self, starts: np.ndarray, lengths: np.ndarray) -> None:
        """Checks that windows [N] lie within the stored rows.

        Raises:
            ValueError: A window does not.
        """
        starts, lengths = starts.astype(np.int64), lengths.astype(np.int64)
        pages = len(self._next)
        wrong = (starts < 0) | (lengths < 1) | (np.maximum(starts, lengths) > pages << self.shift)
        page = starts >> self.shift
        hops = ((starts & self._mask) + lengths - 1) >> self.shift
        while not np.any(wrong | (page < 0) | (page >= pages)):
            page, hops = page[hops > 0], hops[hops > 0]
            if not page.size:
                return
            page, hops, wrong = self._next[page], hops - 1, np.zeros(len(page), bool)
        raise ValueError(f"an item has rows outside of the {pages << self.shift} of its column")

    def free_unheld(self) -> None:
        """Frees the pages that are not held."""
        self._free = collections.deque(page for page, holds in enumerate(self._holds) if not holds)

    # The type of rows and batches: numpy arrays here, tensors in `TensorRowStore`.

    def zeros(self, shape: tuple[int, ...]) -> Any:
        """Allocates rows: `room[place] = row` writes one of them, `room[:n] = other[:n]` copies several.

        Raises:
            ReplayError: There is too little memory to copy the existing rows. Otherwise the system would
                kill the process without a message.
        """
        if self.nbytes > _CHECKED_BYTES and self.nbytes > (free := memory.free_bytes()):
            sizes = (self.nbytes, free, memory.total_bytes())
            has, left, total = map(memory.describe, sizes)
            raise base.ReplayError(
                f"Replay in memory has {has} of rows and needs as much again, briefly, to grow, but only "
                f"{left} of this machine's {total} are free. Free some memory and resume, or start a new run "
                "with a lower `max_size` (an agent's `max_replay_size`)."
            )
        return np.zeros(shape, self.spec.dtype)  # takes no memory before it is written

    def take(self, places: np.ndarray, padding: np.ndarray | None) -> Any:
        """Returns the rows at places [B, L] as a new batch, with 0 where `padding` [B, L] is true."""
        batch = self.rows.take(places, axis=0)
        if padding is not None:
            batch[padding] = 0
        return batch

    def to_numpy(self) -> np.ndarray:
        """Returns all rows, without a copy if possible."""
        return self.rows

    def _places(self, starts: np.ndarray, length: int) -> np.ndarray:
        """Returns the places [B, length] of windows' rows, arbitrary after the end of a shorter window."""
        places = starts[:, None] + np.arange(length)
        crossing = np.flatnonzero((starts & self._mask) > self.page_rows - length)
        if length <= self.page_rows and crossing.size:
            # With a single writer, its pages are adjacent.
            pages = starts[crossing] >> self.shift
            crossing = crossing[self._next[pages] != pages + 1]
        if not crossing.size:
            return places
        starts = starts[crossing]
        offsets = (starts & self._mask)[:, None] + np.arange(length)  # rows since the first page's start
        page = starts >> self.shift
        for hop in range(1, ((int(offsets.max())) >> self.shift) + 1):
            following = self._next[page]
            jump = (following - page - 1) << self.shift
            places[crossing] += np.where(offsets >= hop << self.shift, jump[:, None], 0)
            page = following
        return np.maximum(places, 0)

    def _grow(self) -> None:
        pages = len(self._holds)
        needed = int(pages / self._fill() * _SLACK) + 1
        grown = max(min(pages + pages // 2, needed), pages + pages // 16, pages + 1)
        if grown * self.page_rows > _MAX_ROWS:
            raise base.ReplayError(
                f"A table in memory must need fewer than {_MAX_ROWS} rows per column. Lower its `max_size`."
            )
        self._resize(grown)
        self._free.extend(range(pages, grown))

    def _resize(self, pages: int) -> None:
        old, kept = self.rows, len(self._holds) * self.page_rows
        self.rows = self.zeros((pages * self.page_rows, *self.spec.shape))
        if kept:
            self.rows[:kept] = old[:kept]
        following = np.full(pages, -1, np.int32)
        following[: len(self._holds)] = self._next
        self._next = following
        self._holds.extend([0] * (pages - len(self._holds)))


def check_array(name: str, array: np.ndarray, dtype: np.dtype, shape: tuple[int, ...]) -> None:
    """Checks an array of a checkpoint.

    Raises:
        ValueError: The array has a different dtype or shape.
    """
    if array.dtype != dtype or array.shape != shape:
        raise ValueError(f"`{name}` must be {dtype} of shape {shape}, got {array.dtype} of {array.shape}")


class Stream:
    """The rows of one column that a writer has written, counted over all episodes.

    Row number n is at place `n + _shift` of the store if it is in the page that is being filled.
    """

    def __init__(self, store: RowStore | None, spec: base.ColumnSpec, max_window: int) -> None:
        self.store = store  # None if no table has such a column; rows are then only counted
        self.spec = spec
        self.shape, self.dtype = spec
        self.end = 0  # the number of the next row
        self.origin = 0  # the number of the first row of this episode
        self._max_window = max_window
        self._page_end = 0  # the number of the first row that no longer fits into the newest page
        self._shift = 0
        self._pages: collections.deque[int] = collections.deque()  # the pages of the rows in reach
        self._num_dropped = 0  # pages dropped before these

    @property
    def num_rows(self) -> int:
        """The number of rows in this episode."""
        return self.end - self.origin

    def append(self, row: np.ndarray) -> None:
        """Writes a row, which has the stream's shape and dtype."""
        if self.end == self._page_end:
            self._turn()
        if self.store is not None:
            self.store.rows[self.end + self._shift] = row
        self.end += 1

    def find(self, start: int, length: int) -> int | None:
        """Returns the place of row `start` of this episode, or None if the window is out of reach."""
        number = self.origin + start
        if start < 0 or length < 1 or number < self.end - self._max_window or number + length > self.end:
            return None
        assert self.store is not None
        if number >= self._page_end - self.store.page_rows:
            return number + self._shift
        page = self._pages[(number >> self.store.shift) - self._num_dropped]
        return (page << self.store.shift) + number % self.store.page_rows

    def begin(self) -> None:
        """Begins an episode. Earlier rows are then out of reach."""
        self.origin = self.end
        while len(self._pages) > 1:
            self._drop()

    def close(self) -> None:
        """Drops all pages."""
        while self._pages:
            self._drop()

    def _turn(self) -> None:
        """Takes a page for the next row, and drops the pages that its windows cannot reach."""
        if self.store is None:
            self._page_end = sys.maxsize
            return
        self._pages.append(self.store.take_page(self._pages[-1] if self._pages else None))
        self._shift = (self._pages[-1] << self.store.shift) - self._page_end
        self._page_end += self.store.page_rows
        oldest = max(self.origin, self.end + 1 - self._max_window)
        while (self._num_dropped + 1) << self.store.shift <= oldest:
            self._drop()

    def _drop(self) -> None:
        assert self.store is not None
        self.store.release_page(self._pages.popleft())
        self._num_dropped += 1
