"""Tries random damage: `python -m tests.fuzz --help`, from the repository's root."""

import argparse
import collections
import importlib
import logging
import pathlib
import sys
import time
import traceback
from collections.abc import Callable, Sequence

import torch

_MOST_FAILURES = 20  # of a part, shown before it is given up


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=main.__doc__)
    parser.add_argument(
        "parts", nargs="*", choices=[[], *names()], help="which; all by default", metavar="part"
    )
    parser.add_argument(
        "--count", type=int, help="cases of each part; by default its own number, or 1 of a seed"
    )
    parser.add_argument("--seed", type=int, help="of the first case; 0 by default")
    chosen = parser.parse_args(arguments)
    logging.disable(logging.WARNING)  # of batches that are skipped
    torch.set_num_threads(1)  # Everything here is tiny.
    num_failures = 0
    for name in chosen.parts or names():
        part = importlib.import_module(f"{__package__}.{name}")
        first, count = chosen.seed or 0, part.COUNT if chosen.seed is None else 1
        seeds = range(first, first + (chosen.count or count))
        num_failures += try_all(name, part.check, seeds)
    return int(num_failures > 0)


def names() -> list[str]:
    """The parts, by their files."""
    files = sorted(pathlib.Path(__file__).parent.glob("*.py"))
    return [file.stem for file in files if not file.stem.startswith(("_", "test_"))]


def try_all(name: str, check: Callable[[int], str], seeds: Sequence[int]) -> int:
    """Tries the cases of a part; returns how many failed."""
    start = time.monotonic()
    outcomes: collections.Counter[str] = collections.Counter()
    num_failures = 0
    for seed in seeds:
        try:
            outcomes[check(seed)] += 1
        except Exception:
            num_failures += 1
            traceback.print_exc()
            print(f"{name}: seed {seed} failed; python -m tests.fuzz {name} --seed {seed}")
            if num_failures >= _MOST_FAILURES:
                break
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    seconds = time.monotonic() - start
    print(f"{name}: {num_failures} failed of {seed - seeds[0] + 1} in {seconds:.0f} s ({counts})", flush=True)
    return num_failures


if __name__ == "__main__":
    sys.exit(main())
