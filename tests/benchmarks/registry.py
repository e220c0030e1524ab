"""The benchmarks that there are: every file `bench_*.py` of this folder."""

import importlib
import pathlib
from collections.abc import Sequence

from . import frame


def names() -> list[str]:
    """The names of all benchmarks, which are those of their files."""
    files = sorted(pathlib.Path(__file__).parent.glob("bench_*.py"))
    return [path.stem.removeprefix("bench_") for path in files]


def load(chosen: Sequence[str] = ()) -> list[frame.Benchmark]:
    """Imports the chosen benchmarks, or all of them.

    Raises:
        SystemExit: there is none of that name.
    """
    unknown = sorted(set(chosen) - set(names()))
    if unknown:
        raise SystemExit(f"There is no benchmark {unknown}; there are {names()}.")
    return [importlib.import_module(f"{__package__}.bench_{name}").BENCHMARK for name in chosen or names()]
