"""Datasets: batches from replay as tensors, fetched while the learner computes."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, NamedTuple, Self, TypeVar

import numpy as np
import torch

from minerva_acme import core
from minerva_acme.replay import base, waiting

T = TypeVar("T")

_PREPARING = "Waiting for a batch to be prepared."


class ReplaySample(NamedTuple, Generic[T]):
    """A batch of items."""

    info: base.SampleInfo  # the store's data about the items, on the CPU
    data: T  # the result of `unpack`


class Dataset(core.Closeable, Iterator[ReplaySample[T]], Generic[T]):
    """An endless iterator of batches. As a context manager, it closes itself.

    A daemon thread samples, stacks and copies batches ahead, so that the learner's next batch is ready.
    """

    def __init__(
        self,
        sampler: base.Sampler,
        unpack: Callable[[Mapping[str, torch.Tensor]], T],
        batch_size: int,
        *,
        prefetch: int | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        """Makes the dataset. Nothing is sampled before the first batch is requested.

        Args:
            sampler: The sampler to take items from. The dataset closes it.
            unpack: The function that turns the fields of a batch, each `[B, length, ...]`, into the learner's
                input. It should return contiguous tensors.
            batch_size: The number of items in a batch, B.
            prefetch: The largest number of batches that are kept ready; 0 samples on demand, in the caller's
                thread. None for the number that the sampler recommends.
            device: The device of the tensors.
        """
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be >= 1 item, got {batch_size}.")
        if prefetch is None:
            prefetch = sampler.prefetch
        if prefetch < 0:
            raise ValueError(f"`prefetch` must be >= 0 batches, got {prefetch}.")
        self._sampler = sampler
        self._unpack = unpack
        self._batch_size = batch_size
        self._prefetch = prefetch
        self._device = torch.device(device)
        self._ready: queue.Queue[ReplaySample[T] | BaseException] = queue.Queue(max(prefetch, 1))
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._reason: base.ReplayTimeout | None = None  # what the thread waits for; None while it works
        self._wait_seconds = 0.0

    @property
    def wait_seconds(self) -> float:
        """The total time that the caller has waited for batches, in seconds."""
        return self._wait_seconds

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReplaySample[T]:
        return self.next()

    def next(self, timeout_seconds: float | None = None) -> ReplaySample[T]:
        """Returns the next batch.

        Raises:
            ReplayTimeout: No batch came within `timeout_seconds`; the message says why.
            ReplayError: The dataset is closed or the store is gone.
        """
        start = time.monotonic()
        try:
            if self._prefetch == 0:
                self._check_open()
                return self._sample(timeout_seconds)
            return self._take(timeout_seconds)
        finally:
            self._wait_seconds += time.monotonic() - start

    def close(self) -> None:
        """Stops the thread and closes the sampler, within a second."""
        self._closed.set()
        self._sampler.close()
        with contextlib.suppress(queue.Empty):  # The thread may wait for a place for its batch.
            self._ready.get_nowait()
        if self._thread is not None:
            self._thread.join(waiting.SLICE_SECONDS)

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise base.ReplayError("The dataset is closed. Make a new one.")

    def _take(self, timeout_seconds: float | None) -> ReplaySample[T]:
        wait = waiting.Wait(timeout_seconds)
        self._check_open()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="dataset", daemon=True)
            self._thread.start()
        while True:
            try:
                sample = self._ready.get(timeout=wait.slice())
            except queue.Empty:
                sample = None
            if sample is None:
                self._check_open()
                wait.go_on(self._reason or base.ReplayTimeout(_PREPARING))
                continue
            if isinstance(sample, BaseException):
                self._thread = None  # It has ended; the next call starts a new one.
                raise sample
            return sample

    def _run(self) -> None:
        result: ReplaySample[T] | BaseException
        while not self._closed.is_set():
            try:
                result = self._sample(waiting.SLICE_SECONDS)
            except BaseException as error:
                if isinstance(error, base.ReplayTimeout) and not isinstance(error, base.ReplaySilence):
                    self._reason = error
                    continue
                result = error
            while not self._closed.is_set():
                try:
                    self._ready.put(result, timeout=waiting.SLICE_SECONDS)
                    break
                except queue.Full:
                    continue
            if isinstance(result, BaseException):
                return

    def _sample(self, timeout_seconds: float | None) -> ReplaySample[T]:
        info, fields = self._sampler.sample_batch(self._batch_size, timeout_seconds)
        self._reason = None
        return ReplaySample(
            info, self._unpack({name: self._to_tensor(field) for name, field in fields.items()})
        )

    def _to_tensor(self, field: np.ndarray | torch.Tensor) -> torch.Tensor:
        if isinstance(field, torch.Tensor):
            return field.to(self._device)
        tensor = torch.from_numpy(field)  # shares the array's memory
        if self._device.type == "cpu":
            return tensor
        if self._device.type == "cuda":
            return tensor.pin_memory().to(self._device, non_blocking=True)
        return tensor.to(self._device)
