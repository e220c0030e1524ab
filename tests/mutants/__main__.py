"""Judges the tests by mutants: `python -m tests.mutants --help`, from the repository's root."""

import argparse
import functools
import pathlib
import sys

from . import harness, mutants

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description="Breaks copies of the tree on purpose and looks whether the tests notice.",
    )
    parser.add_argument("names", nargs="*", help="words of a mutant's name or file; all mutants by default")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time, each with a copy")
    parser.add_argument("--output", type=pathlib.Path, help="a file for the table")
    chosen = parser.parse_args(arguments)
    try:
        return run(select(mutants.MUTANTS, chosen.names), root=_ROOT, jobs=chosen.jobs, output=chosen.output)
    except harness.Refused as error:
        print(error, file=sys.stderr)
        return 1


def select(all_mutants: list[harness.Mutant], words: list[str]) -> list[harness.Mutant]:
    """Those with one of the words in their name or file, or all where there are no words."""
    found = {word: [m for m in all_mutants if word in m.name or word in m.file] for word in words}
    unknown = [word for word, some in found.items() if not some]
    if unknown:
        raise harness.Refused(f"There is no mutant with {unknown} in its name or file.")
    return [m for m in all_mutants if not words or any(m in some for some in found.values())]


def run(
    chosen: list[harness.Mutant],
    *,
    root: pathlib.Path,
    files: list[str] | None = None,
    jobs: int = 1,
    output: pathlib.Path | None = None,
) -> int:
    """Judges mutants and shows the table; returns 1 where one survived or could not be judged."""
    results = harness.judge(
        chosen,
        root=root,
        files=harness.tracked_files(root) if files is None else files,
        jobs=jobs,
        show=functools.partial(print, flush=True),
    )
    table = harness.table(results)
    print(f"\n{table}")
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(table + "\n", encoding="utf-8")
    return int(any(result.outcome != "killed" for result in results))


if __name__ == "__main__":
    sys.exit(main())
