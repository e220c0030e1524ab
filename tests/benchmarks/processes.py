"""Variants of a benchmark in separate processes, so that none benefits from the settings of another.

All code of a process shares its memory allocator, thread pools and caches: a plain trainer next to one that
keeps freed memory would use that memory too, which it could not do in a user's program.
"""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator

from . import frame

MakeVariant = Callable[[str], Callable[[], object]]


@contextlib.contextmanager
def each_alone(make: MakeVariant, names: Iterable[str]) -> Iterator[dict[str, frame.Remote]]:
    """Starts a process for each variant, which waits for its turns, and ends all processes on exit.

    Args:
        make: Makes a variant by its name, in its process; a top-level function of a module.
        names: The names of the variants.
    """
    context = multiprocessing.get_context("spawn")
    remotes: dict[str, frame.Remote] = {}
    with contextlib.ExitStack() as stack:
        for name in names:
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(make, name, theirs), daemon=True)
            process.start()
            theirs.close()
            stack.callback(process.join)
            stack.callback(ours.close)  # which ends the process
            remotes[name] = _remote(name, ours)
        for remote in remotes.values():
            remote(0)  # waits until the variant is made
        yield remotes


def _remote(name: str, connection: multiprocessing.connection.Connection) -> frame.Remote:
    def run(calls: int) -> frame.Block:
        connection.send(calls)
        try:
            answer: frame.Block | str = connection.recv()
        except EOFError:
            raise RuntimeError(f"the process of {name!r} has ended") from None
        if isinstance(answer, str):
            raise RuntimeError(f"{name!r} failed:\n{answer}")
        return answer

    return run


def _serve(make: MakeVariant, name: str, connection: multiprocessing.connection.Connection) -> None:
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    function: Callable[[], object] | None = None
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while True:
            calls = connection.recv()
            try:
                function = function or make(name)
                wall, cpu = time.perf_counter(), time.process_time()
                for _ in range(calls):
                    function()
                connection.send(frame.Block(time.perf_counter() - wall, time.process_time() - cpu))
            except Exception:
                connection.send(traceback.format_exc())
