"""Benchmarks: ratios to a plain reference, of runs taken in turn. `make bench` runs them, no test does.

To add one, write a file `bench_<name>.py` here with a `BENCHMARK` in it and nothing to register:

    from collections.abc import Iterator
    import contextlib
    from . import frame

    @contextlib.contextmanager
    def make() -> Iterator[frame.Variants]:
        loop = PlainLoop()                    # heavy imports and set-up go here, not at the top
        yield {"plain": loop.step, "ours": FastLoop().step}
        loop.close()                          # what must be cleaned up, is

    BENCHMARK = frame.Benchmark(name="loop", unit="environment step", make=make, reference="plain",
                                calls_per_block=1000, goals={"ours": 2.5})

A variant is a function without arguments that does one unit of work. It is called `calls_per_block`
times in a row, a block, and a block of each variant in turn makes a round: take so many calls that a
block lasts 20 ms or more. One that does many units by itself (an episode of 1000 steps) says so by
`units_per_call`. Raise `frame.Skip("why")` in `make` where something is not installed; see
`bench_mpo_learner.py` for a whole one, and `python -m tests.benchmarks --help` for running it.
"""
