"""Threads that each compute alone, for work that torch's own threads split too finely.

Torch divides every single operation between its threads and waits for all of them before the next.
Networks of the usual sizes in reinforcement learning have operations of a millisecond and less, of which
the waiting takes a large part: where sleeping threads wake late, as in many virtual machines, a step of SAC
took 1.8 times as long with two threads as with one, and one of DQN 2.7 times. So rows are divided once, each
part goes through all operations on one thread, and work that is too small to divide is left to one thread.
"""

import contextlib
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from typing import TypeVar

import torch
from torch import nn

Result = TypeVar("Result")


def map_rows(
    function: Callable[..., torch.Tensor],
    *tensors: torch.Tensor,
    max_rows: int | None = None,
    num_threads: int | None = None,
) -> torch.Tensor:
    """Evaluates a function of rows without gradient, some rows at a time.

    Args:
        function: (one part of each tensor, [r, ...]) -> [r, ...]. A row of its result must not depend
            on other rows. With several threads, they call it at the same time.
        *tensors: The tensors, [R, ...] each, on one device.
        max_rows: The largest number of rows in a part; None sets no limit.
        num_threads: The number of threads that process the parts, each computing alone. 1 is the calling
            thread, where torch may divide operations; None is `available()` on a CPU, and 1 elsewhere.

    Returns:
        The results, [R, ...], in the order of the rows.

    Raises:
        ValueError: No tensor was given, the tensors differ in their number of rows, or `max_rows` is below 1.
        Exception: Any exception that `function` raised.
    """
    rows = {len(tensor) for tensor in tensors}
    if len(rows) != 1 or (max_rows is not None and max_rows < 1):
        raise ValueError(
            "`tensors` must have the same number of rows, at least one must be given, and `max_rows` must be "
            f">= 1, got tensors of {[len(tensor) for tensor in tensors]} rows and `max_rows` {max_rows}."
        )
    (num_rows,) = rows
    if num_threads is None:
        num_threads = available() if tensors[0].device.type == "cpu" else 1
    num_parts = _num_parts(num_rows, max_rows, num_threads)
    # Gradient mode belongs to a thread, so each call sets its own.
    evaluate = torch.no_grad()(function)
    if num_parts <= 1:
        return evaluate(*tensors)
    parts = zip(*(tensor.tensor_split(num_parts) for tensor in tensors), strict=True)
    if num_threads == 1:
        return torch.cat([evaluate(*part) for part in parts])
    tasks = [_pool(num_threads).submit(evaluate, *part) for part in parts]
    return torch.cat([task.result() for task in tasks])


def run_together(*functions: Callable[[], Result]) -> list[Result]:
    """Calls functions at the same time, each in a thread that computes alone, as far as there are threads.

    Args:
        *functions: The functions, which must not touch each other's data.

    Returns:
        Their results, in order, after all have ended.

    Raises:
        Exception: The exception of the first function that failed, after all have ended.
    """
    num_threads = available()
    if num_threads == 1:
        return [function() for function in functions]
    tasks = [_pool(num_threads).submit(function) for function in functions]
    futures.wait(tasks)
    return [task.result() for task in tasks]


def has_mode() -> bool:
    """Returns whether torch computes otherwise in the calling thread than in the threads of `run_together`.

    Such a mode begins with a block: autocast, a mode of functions or operators, hooks of saved tensors, no
    gradients, inference.
    """
    return bool(
        not torch.is_grad_enabled()
        or torch.is_inference_mode_enabled()
        or torch.is_autocast_enabled("cpu")
        or torch._C._len_torch_function_stack()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._autograd._top_saved_tensors_default_hooks(True)
    )


def size(parameters: Iterable[nn.Parameter], num_rows: int) -> float:
    """Returns the multiplications in a forward pass of so many rows.

    Infinite on another device than a CPU and with convolutions, which use a weight many times.
    """
    parameters = [*parameters]
    if any(each.device.type != "cpu" or each.ndim > 2 for each in parameters):
        return math.inf
    return num_rows * sum(map(torch.Tensor.numel, parameters))


def available() -> int:
    """Returns the number of threads for work that is divided here: torch's, also within `one_thread`."""
    return getattr(_outer, "num_threads", 0) or torch.get_num_threads()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Makes torch use only the calling thread for each of its operations within the block."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    _outer.num_threads = before
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _outer.num_threads = 0


def _num_parts(num_rows: int, max_rows: int | None, num_threads: int) -> int:
    """Returns the smallest fitting number of parts, a multiple of the threads so that none has to wait."""
    fitting = 1 if max_rows is None else math.ceil(num_rows / max_rows)
    return min(num_rows, math.ceil(fitting / num_threads) * num_threads)


def stop_threads() -> None:
    """Ends the threads that wait for work. The next call starts new ones."""
    with _lock:
        while _pools:
            _pools.popitem()[1].shutdown()


def _pool(num_threads: int) -> futures.ThreadPoolExecutor:
    """Returns a pool of threads that do not divide their operations further; there is one for each size."""
    with _lock:
        if num_threads not in _pools:
            _pools[num_threads] = _start_pool(num_threads)
        return _pools[num_threads]


def _start_pool(num_threads: int) -> futures.ThreadPoolExecutor:
    before = torch.get_num_threads()
    all_started = threading.Barrier(num_threads + 1)

    def compute_alone() -> None:
        torch.get_num_threads()  # else torch would set this thread's number later, at its first operation
        torch.set_num_threads(1)
        all_started.wait()

    pool = futures.ThreadPoolExecutor(num_threads, "rows", initializer=compute_alone)
    for _ in range(num_threads):
        pool.submit(_nothing)
    all_started.wait()
    torch.set_num_threads(before)  # since they also changed the default for future threads
    return pool


def _nothing() -> None:
    """Does nothing; submitting it makes the pool start a thread."""


_outer = threading.local()  # `num_threads`: torch's before the calling thread's `one_thread`, else 0 or unset
_pools: dict[int, futures.ThreadPoolExecutor] = {}
_lock = threading.Lock()


def _forget_threads() -> None:
    global _lock
    _lock = threading.Lock()
    _pools.clear()


# A forked child inherits the pools, but not their threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
