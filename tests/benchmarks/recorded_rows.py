"""Seconds and peak memory of writing recorded episodes, reading them, and filling MPO's replay with them.

    python -m tests.benchmarks.recorded_rows --rows 1000000

Each phase has a process of its own, whose peak memory is that of the phase: of streaming, without imports.
"""

import argparse
import multiprocessing
import pathlib
import resource
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np

from minerva_acme import datasets, replay, specs
from minerva_acme.agents import mpo

LENGTH = 1_000  # steps of an episode, as in dm_control's suite
SPEC = specs.EnvironmentSpec(  # of walker walk
    specs.Array((24,), np.float32),
    specs.BoundedArray((6,), np.float32, -1.0, 1.0),
    specs.Array((), np.float32),
    specs.BoundedArray((), np.float32, 0.0, 1.0),
)


def episodes(num_rows: int) -> Iterator[datasets.Episode]:
    random = np.random.default_rng(0)
    for _ in range(0, num_rows, LENGTH):
        numbers = random.uniform(-1.0, 1.0, (LENGTH + 1, 38)).astype(np.float32)
        extras = {"log_prob": numbers[1:, 31], "raw_action": numbers[1:, 32:]}
        yield datasets.Episode(numbers[:, :24], numbers[1:, 24:30], numbers[1:, 30], False, extras)


def write(path: pathlib.Path, num_rows: int) -> None:
    datasets.write(path, episodes(num_rows), SPEC)


def read(path: pathlib.Path, num_rows: int) -> None:
    assert sum(episode.num_steps for episode in datasets.read(path)) >= num_rows


def play(path: pathlib.Path, num_rows: int) -> None:
    builder = mpo.MPOBuilder(mpo.MPOConfig())
    with (
        replay.MemoryServer(builder.make_replay_tables(SPEC), seed=0) as server,
        server.client() as client,
        builder.make_adder(client, SPEC) as adder,
    ):
        datasets.play(datasets.read(path), adder, spec=SPEC, extras_spec=builder.extras_spec(SPEC))


def measure(phase: Callable[[pathlib.Path, int], None], path: pathlib.Path, num_rows: int) -> str:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began_at, cpu_before = time.perf_counter(), time.process_time()
    phase(path, num_rows)
    seconds, cpu = time.perf_counter() - began_at, time.process_time() - cpu_before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (
        f"{phase.__name__}: {seconds:.1f} s, {cpu:.1f} s of CPU time, peak memory +{(peak - before) >> 10} MB"
    )


def main(num_rows: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "rows-v0")
        lines = []
        for phase in (write, read, play):
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                lines.append(pool.apply(measure, (phase, path, num_rows)))
            print(lines[-1], flush=True)
        size = sum(file.stat().st_size for file in path.rglob("*.*"))
        print(f"{num_rows:,} rows, {size >> 20} MB")
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    main(parser.parse_args().rows)
