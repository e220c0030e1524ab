"""A logger that does not wait for the disk."""

import atexit
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

from minerva_acme.loggers import base


class AsyncLogger(base.Logger):
    """Passes rows to another logger in a separate thread, in order, and loses none.

        write    hands the row to the thread; waits only while `max_pending` rows are pending
        close    returns once every row is written and the logger is closed

    Errors of the other logger are raised by the next `write`, which still accepts its own row, or by
    `close`. Pending rows are also written if the program ends without `close`.
    """

    def __init__(self, logger: base.Logger, *, max_pending: int = 1000) -> None:
        """Starts the thread.

        Args:
            logger: The logger that writes the rows. It is owned by this one and only called by the thread.
            max_pending: The maximum number of rows that are not yet written, >= 1.
        """
        if max_pending < 1:
            raise ValueError(f"`max_pending` must be >= 1 row, got {max_pending}.")
        self._logger = logger
        self._pending: queue.Queue[dict[str, Any] | None] = queue.Queue(max_pending)  # None: the end
        self._errors: queue.SimpleQueue[Exception] = queue.SimpleQueue()
        self._is_closed = False
        self._lock = threading.Lock()  # so that no row is queued after the end
        self._thread = threading.Thread(target=self._run, name="async_logger", daemon=True)
        self._thread.start()
        # Daemon threads still run when these functions are called, and may be stopped at any point later.
        atexit.register(self.close)

    def write(self, values: Mapping[str, Any]) -> None:
        """Hands a row to the thread, then raises the errors of the other logger since the last call.

        Raises:
            ValueError: The logger is closed.
            Exception: The other logger raised an error; several errors are raised as a group.
        """
        with self._lock:
            if self._is_closed:
                raise ValueError("The asynchronous logger is closed. Make a new one.")
            self._pending.put(dict(values))
        self._raise_errors("writing rows")

    def close(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._pending.put(None)
        self._thread.join()
        atexit.unregister(self.close)
        self._raise_errors("writing rows and closing")

    def _run(self) -> None:
        while (row := self._pending.get()) is not None:
            self._keep_error(self._logger.write, row)
        self._keep_error(self._logger.close)

    def _keep_error(self, do: Callable[..., None], *arguments: Any) -> None:
        try:
            do(*arguments)
        except Exception as error:
            self._errors.put(error)

    def _raise_errors(self, doing: str) -> None:
        errors = []
        while not self._errors.empty():
            errors.append(self._errors.get())
        base.raise_all(errors, f"The logger failed {len(errors)} times {doing}")
