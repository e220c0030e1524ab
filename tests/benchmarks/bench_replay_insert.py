"""Inserting a step and an item: each store through an adder, compared with a bare ring buffer in numpy."""

import contextlib
from collections.abc import Iterator

from . import frame, replay_setup


@contextlib.contextmanager
def make() -> Iterator[frame.Variants]:
    with contextlib.ExitStack() as stack:
        clients = stack.enter_context(replay_setup.stores())
        steps = {
            name: stack.enter_context(contextlib.closing(replay_setup.Steps(client)))
            for name, client in clients.items()
        }
        yield {"ring": replay_setup.Ring().add, **{name: stream.add for name, stream in steps.items()}}


BENCHMARK = frame.Benchmark(
    name="replay_insert",
    unit="step",
    make=make,
    reference="ring",
    calls_per_block=2000,
    threads=(1,),
    cpu_clock=replay_setup.CLOCK,
)
