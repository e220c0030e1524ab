"""Sampling 256 sequences of 5 steps as tensors: each store compared with a bare ring buffer in numpy."""

import contextlib
from collections.abc import Iterator

from . import frame, replay_setup


@contextlib.contextmanager
def make() -> Iterator[frame.Variants]:
    with contextlib.ExitStack() as stack:
        clients = stack.enter_context(replay_setup.stores())
        datasets = replay_setup.datasets(clients, stack)
        bare = replay_setup.bare_sampler(clients["Reverb, in process"])
        yield {"ring": replay_setup.Ring().sample, **datasets, "Reverb's sampler alone": bare}


BENCHMARK = frame.Benchmark(
    name="replay_sample",
    unit="batch",
    make=make,
    reference="ring",
    calls_per_block=100,
    goals={"memory": 1 / 3},
    threads=(1,),
    cpu_clock=replay_setup.CLOCK,
)
