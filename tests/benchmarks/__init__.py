"""Benchmarks: ratios to a plain reference, measured in turn. `make bench` runs them; tests do not.

To add one, write a file `bench_<name>.py` here that defines `BENCHMARK`; it needs no registration:

    from collections.abc import Iterator
    import contextlib
    from . import frame

    @contextlib.contextmanager
    def make() -> Iterator[frame.Variants]:
        loop = PlainLoop()                    # heavy imports and setup go here, not at the top
        yield {"plain": loop.step, "ours": FastLoop().step}
        loop.close()                          # cleanup goes here

    BENCHMARK = frame.Benchmark(name="loop", unit="environment step", make=make, reference="plain",
                                calls_per_block=1000, goals={"ours": 2.5})

A variant is a function without arguments that does one unit of work. A block is `calls_per_block`
calls of it in a row, and a round is one block of each variant. Choose `calls_per_block` so that a block
takes at least 20 ms. If one call does several units (an episode of 1000 steps), set `units_per_call`.
In `make`, raise `frame.Skip("why")` if something is not installed. See `bench_mpo_learner.py` for a
complete example, and `python -m tests.benchmarks --help` for how to run it.
"""
