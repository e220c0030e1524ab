"""Measures variants of one piece of work in turn, and compares each with a reference.

On a machine with other work, the same code may take twice as long from one second to the next. So variants
take turns, one block each, in reverse order every other round, which spreads slow seconds over all of them.

CPU time is measured in addition to wall time. Ratios of wall time are only meaningful on an idle machine:
with more work than cores, short blocks often did not wait at all and long ones always did, probably because
of the scheduler's time slices, and a variant 3 times as fast looked 10 or 16 times as fast. `is_busy` detects
this; CPU ratios then differed by up to a third between runs.
"""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

Remote = Callable[[int], "Block"]
"""Makes a number of calls and returns their total cost, in another process or for the relevant part."""
Variants = Mapping[str, Callable[[], object]] | Mapping[str, Remote]

_MIN_ROUNDS = 5


class Skip(Exception):
    """A benchmark cannot run here; the message says why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A piece of work in several variants."""

    name: str
    unit: str
    """The unit of work, in words: "learner step"."""
    make: Callable[[], AbstractContextManager[Variants]]
    """Sets up the variants, by name, and cleans up after them."""
    reference: str
    """The variant that the others are compared with."""
    goals: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """How many times as fast as the reference a variant should be."""
    calls_per_block: int = 1
    units_per_call: int = 1
    threads: tuple[int, ...] = (1, 2)
    """The numbers of torch threads to measure with."""
    cpu_clock: Callable[[], float] = time.process_time
    """Returns the CPU seconds used so far; other processes that take part need another clock."""
    is_remote: bool = False
    """Whether `make` returns a `Remote` for each variant, as `processes.each_alone` does."""


class Block(NamedTuple):
    """The cost of a unit of work in one block."""

    wall: float  # seconds
    cpu: float  # seconds


class Summary(NamedTuple):
    """Statistics over the blocks of a variant; times are seconds per unit of work."""

    wall_median: float
    wall_p10: float
    cpu_median: float
    cpu_p10: float
    # How many times as fast as the reference, by each of these and by the median of ratios within rounds.
    wall_ratio: float
    p10_ratio: float
    cpu_ratio: float
    cpu_p10_ratio: float
    paired_ratio: float
    rounds: int


def measure(benchmark: Benchmark, variants: Variants, seconds: float) -> dict[str, list[Block]]:
    """Runs rounds for about `seconds` seconds, at least five, after one warm-up block per variant.

    Returns:
        The blocks of each variant, by name; blocks with the same index belong to the same round.
    """
    blocks: dict[str, list[Block]] = {name: [] for name in variants}
    for function in variants.values():
        _run_block(benchmark, function)
    start = time.perf_counter()
    order = list(variants)
    while len(blocks[order[0]]) < _MIN_ROUNDS or time.perf_counter() - start < seconds:
        for name in order:
            blocks[name].append(_run_block(benchmark, variants[name]))
        order.reverse()
    return blocks


def _run_block(benchmark: Benchmark, function: Any) -> Block:
    units = benchmark.calls_per_block * benchmark.units_per_call
    if benchmark.is_remote:
        block: Block = function(benchmark.calls_per_block)
        return Block(block.wall / units, block.cpu / units)
    wall, cpu = time.perf_counter(), benchmark.cpu_clock()
    for _ in range(benchmark.calls_per_block):
        function()
    return Block((time.perf_counter() - wall) / units, (benchmark.cpu_clock() - cpu) / units)


def summarise(blocks: Mapping[str, list[Block]], reference: str) -> dict[str, Summary]:
    """Returns medians, tenth percentiles and ratios to the reference, by name of the variant."""

    def median(values: list[float]) -> float:
        return statistics.median(values)

    def wall(name: str) -> list[float]:
        return [block.wall for block in blocks[name]]

    def cpu(name: str) -> list[float]:
        return [block.cpu for block in blocks[name]]

    def ratio(theirs: float, ours: float) -> float:
        return theirs / ours if ours > 0.0 else math.nan

    return {
        name: Summary(
            wall_median=median(wall(name)),
            wall_p10=_p10(wall(name)),
            cpu_median=median(cpu(name)),
            cpu_p10=_p10(cpu(name)),
            wall_ratio=ratio(median(wall(reference)), median(wall(name))),
            p10_ratio=ratio(_p10(wall(reference)), _p10(wall(name))),
            cpu_ratio=ratio(median(cpu(reference)), median(cpu(name))),
            cpu_p10_ratio=ratio(_p10(cpu(reference)), _p10(cpu(name))),
            paired_ratio=median(
                [ratio(theirs, ours) for theirs, ours in zip(wall(reference), wall(name), strict=True)]
            ),
            rounds=len(blocks[name]),
        )
        for name in blocks
    }


def is_busy(reference: Summary) -> bool:
    """Returns whether the reference waited for a processor so long that wall ratios are meaningless."""
    return reference.wall_median > 1.2 * reference.cpu_median


def _p10(values: list[float]) -> float:
    return sorted(values)[len(values) // 10]
