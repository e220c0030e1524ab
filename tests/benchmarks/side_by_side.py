"""Learner steps per second of one learner and of two side by side, each in its own process.

Run `python -m tests.benchmarks.side_by_side` in the repository's root, on an idle machine: each learner needs
a core. The variants take batches of the same size, and take turns. docs/performance.md has the numbers.
"""

import argparse
import dataclasses
import itertools
import multiprocessing
import statistics
import tempfile
import time
from typing import Any, NamedTuple


class Variant(NamedTuple):
    """Learners that make the same step."""

    agent: str
    num_learners: int
    num_threads: int  # of each
    batch_size: int

    def __str__(self) -> str:
        return (
            f"{self.agent}, batches of {self.batch_size}: {self.num_learners} learner(s) with "
            f"{self.num_threads} thread(s) each"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="to measure each variant in a round")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[256, 1024])
    arguments = parser.parse_args()
    variants = [
        Variant(agent, num_learners, num_threads, batch_size)
        for agent, batch_size in itertools.product(("sac", "mpo"), arguments.batch_sizes)
        for num_learners, num_threads in ((1, 1), (1, 2), (2, 1))
    ]
    speeds: dict[Variant, list[tuple[float, float]]] = {variant: [] for variant in variants}
    for _ in range(arguments.rounds):
        for variant in variants:
            speeds[variant].append(measure(variant, arguments.seconds))
    for variant, found in speeds.items():
        per_second = [each for each, _ in found]
        cpu = statistics.median(each for _, each in found)
        print(
            f"{variant}: {statistics.median(per_second):.1f} steps/s (from {min(per_second):.1f} to "
            f"{max(per_second):.1f}), {1e3 * cpu:.1f} ms of CPU time a step"
        )


def measure(variant: Variant, seconds: float) -> tuple[float, float]:
    """Returns the steps per second, and the CPU time of a step of all learners together, in seconds."""
    context = multiprocessing.get_context("spawn")
    results: Any = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(target=_learn, args=(variant, rank, f"{folder}/ranks", seconds, results))
            for rank in range(variant.num_learners)
        ]
        for process in processes:
            process.start()
        found = [results.get() for _ in processes]
        for process in processes:
            process.join()
    return statistics.mean(speed for speed, _ in found), sum(cpu for _, cpu in found)


def _learn(variant: Variant, rank: int, file: str, seconds: float, results: Any) -> None:
    import torch

    from minerva_acme import learners
    from minerva_acme.agents import mpo

    from . import learner_setup, mpo_setup

    torch.set_num_threads(variant.num_threads)
    ranks = learners.Ranks(file, rank, variant.num_learners) if variant.num_learners > 1 else None
    if variant.agent == "mpo":
        spec = mpo_setup.make_spec()
        config = dataclasses.replace(mpo_setup.PLAIN_CONFIG, batch_size=variant.batch_size)
        share = config if ranks is None else mpo.MPOBuilder(config).for_learners(ranks.size).config
        batches = [mpo_setup.make_batch(spec, share, seed) for seed in range(4)]
        step = mpo_setup.make_learner(spec, share, batches, ranks).step
    else:
        step = learner_setup.make_step("sac", "auto", ranks, batch_size=variant.batch_size)
    for _ in range(10):
        step()
    number, began, cpu = 0, time.perf_counter(), time.process_time()
    going_on = True
    while going_on:
        step()
        number += 1
        going_on = time.perf_counter() - began < seconds
        if ranks is not None:  # the first learner tells all when it is over
            going_on = not ranks.exchange(int(not going_on))[0]
    results.put((number / (time.perf_counter() - began), (time.process_time() - cpu) / number))


if __name__ == "__main__":
    main()
