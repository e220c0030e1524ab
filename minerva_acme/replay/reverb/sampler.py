"""A sampler from Reverb, in a separate thread."""

import atexit
import collections
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minerva_acme.replay import base, messages, waiting
from minerva_acme.replay.reverb import log
from minerva_acme.replay.reverb.connection import ReverbConnection

_MAX_IN_FLIGHT = 512  # items that Reverb fetches ahead
_POLL_SECONDS = 0.02

_samplers: "weakref.WeakSet[ReverbSampler]" = weakref.WeakSet()
_blocked_samplers: list[Any] = []  # of servers in other processes; see `_let_go`
_kept_samplers: dict[str, list[Any]] = {}  # of the servers in this process, by address

_EXIT_SECONDS = 1.0

_INFO_DTYPES = (np.uint64, np.float64, np.int64, np.float64, np.int32)  # of base.SampleInfo


class ReverbSampler(base.Sampler):
    """A sampler of items from one table. It is used by one thread.

    Reverb's own sampler blocks and cannot be interrupted. A daemon thread calls it, so that the caller can
    always be interrupted and a closed sampler can be left behind.
    """

    def __init__(self, connection: ReverbConnection, table: str, exact: bool | None = None) -> None:
        """Makes a sampler; see `ReverbClient.sampler`.

        Raises:
            ReplayError: There is no such table.
        """
        description = connection.table(table)
        if exact is None:
            exact = description.max_times_sampled > 0 or description.sampler in ("Fifo", "Lifo")
        self._connection = connection
        self._table = table
        self._stack: dict[str, Callable[[Sequence[np.ndarray]], np.ndarray]] = {
            name: _stack_padded if spec.shape[0] == messages.UNKNOWN else _stack
            for name, spec in description.fields.items()
        }
        self._exact = exact

        # Shared with the thread.
        self._changed = threading.Condition()
        self._wanted = 0  # the number of items that `_items` should hold
        self._items: collections.deque[Any] = collections.deque()
        self._error: Exception | None = None
        self._closed = False
        self._is_fetching = False  # whether the thread is inside Reverb's sampler, which may block for good

        self._thread: threading.Thread | None = None
        _samplers.add(self)

    def sample_batch(
        self, batch_size: int, timeout_seconds: float | None = None
    ) -> tuple[base.SampleInfo, dict[str, np.ndarray]]:
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be >= 1 item, got {batch_size}.")
        items = self._take(batch_size, timeout_seconds)
        info = base.SampleInfo(
            *(
                np.fromiter((item[index] for item in items), dtype, batch_size)
                for index, dtype in enumerate(_INFO_DTYPES)
            )
        )
        fields = {
            name: stack([item[len(_INFO_DTYPES) + index] for item in items])
            for index, (name, stack) in enumerate(self._stack.items())
        }
        return info, fields

    def close(self, wait_seconds: float = 0.2) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(wait_seconds)  # The thread may block until the process ends.

    def close_at_exit(self, wait_seconds: float) -> None:
        """Closes it, and waits longer for a thread that only asks the server, since its questions end."""
        self.close(wait_seconds)
        while self.is_running() and not self._is_fetching:
            self.close(_POLL_SECONDS)

    @property
    def address(self) -> str:
        """The server's address."""
        return self._connection.address

    @property
    def table(self) -> str:
        """The table's name."""
        return self._table

    def is_running(self) -> bool:
        """Returns whether its thread runs; after `close`, it does if it is blocked inside Reverb."""
        return self._thread is not None and self._thread.is_alive()

    def _take(self, batch_size: int, timeout_seconds: float | None) -> list[Any]:
        """Returns the next items. Items that came before an interrupt are kept for the next call."""
        wait = waiting.Wait(timeout_seconds)
        while True:
            with self._changed:
                self._request(batch_size)
                self._changed.wait_for(
                    lambda: len(self._items) >= batch_size or self._closed or self._error, wait.slice()
                )
                if self._closed:
                    raise base.ReplayError(messages.sampler_closed(self._table))
                if self._error is not None:
                    error, self._error = self._error, None
                    raise base.ReplayError(f"Sampling from table '{self._table}' failed: {error}") from error
                if len(self._items) >= batch_size:
                    self._wanted = 0
                    return [self._items.popleft() for _ in range(batch_size)]
            wait.go_on(self._explain_wait(batch_size))

    def _request(self, num_items: int) -> None:
        self._wanted = num_items
        if self._thread is None and not self._closed:
            thread = threading.Thread(target=self._run, name=f"sampler-{self._table}", daemon=True)
            thread.start()
            self._thread = thread  # only now: one that was not started cannot be joined
        self._changed.notify_all()

    def _run(self) -> None:
        """Fetches items while some are wanted, until the sampler is closed."""
        sampler = None
        while missing := self._wait_until_wanted():
            try:
                if sampler is None or self._exact:
                    allowed = self._wait_until_allowed()
                    if not allowed:
                        break
                    # No more than is available: an exact sampler never blocks inside Reverb, and takes
                    # nothing from the table after it is closed.
                    missing = min(missing, allowed) if self._exact else missing
                    max_samples, max_in_flight = (missing, missing) if self._exact else (-1, _MAX_IN_FLIGHT)
                    with log.quiet():
                        sampler = self._connection.client.NewSampler(self._table, max_samples, max_in_flight)
                self._is_fetching = True
                for _ in range(missing):
                    if self._closed:
                        break
                    self._items.append(sampler.GetNextTrajectory())
            except Exception as error:
                sampler = None
                with self._changed:
                    self._error = error
                    self._wanted = 0
            with self._changed:
                self._is_fetching = False
                self._changed.notify_all()
        self._let_go(sampler)

    def _wait_until_wanted(self) -> int:
        """Waits until items are wanted. Returns their number, or 0 if closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) < self._wanted)
            return 0 if self._closed else self._wanted - len(self._items)

    def _let_go(self, sampler: Any) -> None:
        """Prevents Reverb's sampler from being destroyed while it is blocked.

        Its destructor waits up to three seconds, holding the interpreter's lock, for items that it is
        fetching ahead. Where the server is in this process, it is kept until that has stopped, since it may
        block at any time until then.
        """
        if sampler is None:
            return
        if self.address in _kept_samplers:
            _kept_samplers[self.address].append(sampler)
            return
        try:
            blocked = not self._connection.table(self._table, timeout_seconds=1.0).samples_allowed()
        except base.ReplayError:
            blocked = True
        if blocked:
            _blocked_samplers.append(sampler)

    def _wait_until_allowed(self) -> int:
        """Waits until the table can be sampled. Returns how many samples it allows, or 0 if closed."""
        while not self._closed:
            try:
                allowed = self._connection.table(self._table, timeout_seconds=1.0).samples_allowed()
            except base.ReplayTimeout:  # The caller notices this itself.
                continue
            if allowed:
                return allowed
            time.sleep(_POLL_SECONDS)
        return 0

    def _explain_wait(self, batch_size: int) -> base.ReplayTimeout:
        table = self._connection.table(self._table)
        reason = messages.sampling_waits(table, batch_size, len(self._items))
        # Items that the table allowed to an exact sampler are on their way.
        reason.held_back &= not (self._exact and self._is_fetching)
        return reason


def begin_keeping(address: str) -> None:
    """Begins to keep the closed samplers of a server in this process, see `ReverbSampler._let_go`."""
    _kept_samplers[address] = []


def close_all_of(address: str) -> list[ReverbSampler]:
    """Closes the samplers of a server in this process, and returns those that are blocked inside Reverb."""
    found = [sampler for sampler in list(_samplers) if sampler.address == address]
    for sampler in found:
        sampler.close()
    return [sampler for sampler in found if sampler.is_running()]


def end_keeping(address: str) -> None:
    """Destroys what was kept, once the server has stopped and nothing waits for it."""
    _kept_samplers.pop(address, None)


@atexit.register
def _close_all() -> None:
    """Ends the threads while the interpreter runs. A thread that returns from C++ later would abort it."""
    deadline = time.monotonic() + _EXIT_SECONDS
    for sampler in list(_samplers):
        sampler.close_at_exit(max(0.0, deadline - time.monotonic()))


def _stack(items: Sequence[np.ndarray]) -> np.ndarray:
    """Stacks items of the same length, three times faster than np.stack."""
    return np.concatenate(items).reshape(len(items), *items[0].shape)


def _stack_padded(items: Sequence[np.ndarray]) -> np.ndarray:
    """Stacks items of different lengths. Shorter ones are padded with rows of 0."""
    longest = max(items, key=len)
    batch = np.zeros((len(items), *longest.shape), longest.dtype)
    for place, rows in zip(batch, items, strict=True):
        place[: len(rows)] = rows
    return batch
