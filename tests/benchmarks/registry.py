"""The available benchmarks: every file `bench_*.py` in this folder."""

import importlib
import pathlib
from collections.abc import Sequence

from . import frame


def names() -> list[str]:
    """Returns the names of all benchmarks, from the names of their files."""
    files = sorted(pathlib.Path(__file__).parent.glob("bench_*.py"))
    return [path.stem.removeprefix("bench_") for path in files]


def load(chosen: Sequence[str] = ()) -> list[frame.Benchmark]:
    """Imports the chosen benchmarks, or all of them.

    Raises:
        SystemExit: There is no benchmark with this name.
    """
    unknown = sorted(set(chosen) - set(names()))
    if unknown:
        raise SystemExit(f"There is no benchmark {unknown}; there are {names()}.")
    return [importlib.import_module(f"{__package__}.bench_{name}").BENCHMARK for name in chosen or names()]
