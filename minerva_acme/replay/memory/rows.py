"""Rows of a column in memory: stored once, in pages that are used again when no item refers to them."""

import collections
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from minerva_acme.replay import base

_MAX_PAGE_BYTES = 1 << 20
_MIN_PAGE_ROWS, _MAX_PAGE_ROWS = 16, 256  # powers of 2
_MAX_ROWS = np.iinfo(np.int32).max  # items keep the number of their first row as an int32
_SLACK = 1.02  # more pages than the items seen so far would need


class Arrays(Protocol):
    """What rows are kept in, and what batches are made of."""

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Makes room for rows: `room[place] = row` writes one, `room[:n] = other[:n]` copies several."""

    def take(self, rows: Any, places: np.ndarray, lengths: np.ndarray | None) -> Any:
        """Returns the rows at places [B, L] as a fresh batch; zeros from each of `lengths` [B] on."""

    def batch(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Returns a batch of zeros."""

    def to_numpy(self, rows: Any) -> np.ndarray:
        """Returns rows as an array, which may share their memory."""


class NumpyArrays:
    """Rows and batches are numpy arrays."""

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        return np.zeros(shape, dtype)  # takes no memory before it is written

    def take(self, rows: np.ndarray, places: np.ndarray, lengths: np.ndarray | None) -> np.ndarray:
        batch = rows.take(places, axis=0)
        if lengths is not None:
            batch[np.arange(places.shape[1]) >= lengths[:, None]] = 0
        return batch

    def batch(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        return np.zeros(shape, dtype)

    def to_numpy(self, rows: np.ndarray) -> np.ndarray:
        return rows


class RowStore:
    """The rows of one column, of all writers.

    A writer takes page after page and fills it row by row. An item is a start and a length: its rows
    follow each other, at the end of a page in the page that its writer took next.

        page 0 (writer A)  | page 1 (writer B)  | page 2 (writer A)
        a0 a1 a2 a3 ... an | b0 b1 b2 b3 ... bn | an+1 an+2 ...
                      [==================== item =====]

    A page is free again once no writer can reach it and no item has rows in it. Where none is free the
    store grows by half, or by less if the tables will not need that much.
    """

    def __init__(
        self,
        spec: base.ColumnSpec,
        fill: Callable[[], float],
        arrays: Arrays,
        in_order: bool,
    ) -> None:
        """Initialises; nothing is allocated before the first row.

        Args:
            spec: of a row.
            fill: says how full the tables of this column are, in (0, 1].
            arrays: makes what they are kept in.
            in_order: whether items leave in the order in which they came. Otherwise pages are small,
                since one item that stays keeps a whole page.
        """
        row_bytes = max(1, int(np.prod(spec.shape)) * np.dtype(spec.dtype).itemsize)
        page_rows = min(max(_MAX_PAGE_BYTES // row_bytes, _MIN_PAGE_ROWS), _MAX_PAGE_ROWS)
        if not in_order:
            page_rows = _MIN_PAGE_ROWS
        self.shift = page_rows.bit_length() - 1
        self.page_rows = 1 << self.shift
        self.spec = spec
        self.row_bytes = row_bytes
        self._mask = self.page_rows - 1
        self._fill = fill
        self._arrays = arrays
        self.rows: Any = arrays.zeros((0, *spec.shape), np.dtype(spec.dtype))
        self._holds: list[int] = []  # of each page: items and writers that need it
        self._next = np.empty(0, np.int32)  # of each page: the one its writer took after it
        self._free: collections.deque[int] = collections.deque()

    @property
    def nbytes(self) -> int:
        """Bytes that rows and pages take."""
        return len(self._holds) * (self.page_rows * self.row_bytes + 16)

    @property
    def num_pages(self) -> int:
        """Pages, free ones included."""
        return len(self._holds)

    def take_page(self, after: int | None) -> int:
        """Gives a writer a page that nobody uses, to follow the page `after`."""
        if not self._free:
            self._grow()
        page = self._free.popleft()
        self._holds[page] = 1
        if after is not None:
            self._next[after] = page
        return page

    def release_page(self, page: int) -> None:
        """Takes back one hold of a page."""
        self._holds[page] -= 1
        if not self._holds[page]:
            self._free.append(page)

    def hold(self, start: int, length: int) -> None:
        """Keeps the pages of a window."""
        page = start >> self.shift
        self._holds[page] += 1
        for _ in range(((start & self._mask) + length - 1) >> self.shift):
            page = int(self._next[page])
            self._holds[page] += 1

    def release(self, start: int, length: int) -> None:
        """Takes back one `hold` of a window."""
        page = start >> self.shift
        hops = ((start & self._mask) + length - 1) >> self.shift
        self._holds[page] -= 1
        if not self._holds[page]:
            self._free.append(page)
        for _ in range(hops):
            page = int(self._next[page])
            self.release_page(page)

    def gather(self, starts: np.ndarray, length: int, lengths: np.ndarray | None) -> Any:
        """Returns the rows of windows that begin at `starts` [B] as a fresh `[B, length, *row shape]`.

        Args:
            starts: place of each window's first row.
            length: rows, of the longest window at least.
            lengths: of each window [B], behind which there are rows of 0; None where all have `length`.
        """
        return self._arrays.take(self.rows, self._places(starts, length), lengths)

    def batch(self, batch_size: int, length: int) -> Any:
        """Returns windows of 0, of the kind that `gather` returns."""
        return self._arrays.batch((batch_size, length, *self.spec.shape), np.dtype(self.spec.dtype))

    def save(self) -> dict[str, np.ndarray]:
        """Returns the rows and the order of their pages; not copied where they are in numpy."""
        return {"rows": self._arrays.to_numpy(self.rows), "next": self._next}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Takes over what `save` returned; what items refer to must be held next."""
        rows = state["rows"]
        self._resize(len(state["next"]))
        if len(rows):
            self.rows[:] = rows
        self._next = state["next"].copy()

    def hold_many(self, starts: np.ndarray, lengths: np.ndarray) -> None:
        """Keeps the pages of the windows [B] of restored items, and frees the others."""
        pages = starts >> self.shift
        hops = ((starts & self._mask) + lengths - 1) >> self.shift
        holds = np.array(self._holds)
        hop = 0
        while pages.size:
            np.add.at(holds, pages, 1)
            further = hops > hop
            pages, hops, hop = self._next[pages[further]], hops[further], hop + 1
        self._holds = holds.tolist()

    def free_unheld(self) -> None:
        """Frees the pages that nobody holds."""
        self._free = collections.deque(page for page, holds in enumerate(self._holds) if not holds)

    def _places(self, starts: np.ndarray, length: int) -> np.ndarray:
        """The places [B, length] of the rows of windows; behind the end of a shorter one, any place."""
        places = starts[:, None] + np.arange(length)
        crossing = np.flatnonzero((starts & self._mask) > self.page_rows - length)
        if length <= self.page_rows and crossing.size:
            # A writer alone takes pages that lie one behind the other.
            pages = starts[crossing] >> self.shift
            crossing = crossing[self._next[pages] != pages + 1]
        if not crossing.size:
            return places
        starts = starts[crossing]
        offsets = (starts & self._mask)[:, None] + np.arange(length)  # rows from the first page's start on
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
                f"A table in memory must need fewer than {_MAX_ROWS} rows of a column. Lower its `max_size`."
            )
        self._resize(grown)
        self._free.extend(range(pages, grown))

    def _resize(self, pages: int) -> None:
        old, kept = self.rows, len(self._holds) * self.page_rows
        self.rows = self._arrays.zeros((pages * self.page_rows, *self.spec.shape), np.dtype(self.spec.dtype))
        if kept:
            self.rows[:kept] = old[:kept]
        following = np.full(pages, -1, np.int32)
        following[: len(self._holds)] = self._next
        self._next = following
        self._holds.extend([0] * (pages - len(self._holds)))
