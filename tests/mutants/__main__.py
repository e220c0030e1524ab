"""Judges the tests by mutants: `python -m tests.mutants --help`, from the repository's root."""

import argparse
import functools
import hashlib
import itertools
import math
import pathlib
import subprocess
import sys
from collections.abc import Iterable, Sequence

from . import covered, equivalent, generated, harness, mutants

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_QUOTED = pathlib.Path(mutants.__file__)
_MINUTES = 55  # of a run that takes a sample

# How many generated mutants of each file a run without words judges, by folder; the longest name counts.
_PER_FILE = {
    "adders": 3,
    "agents": 3,
    "minerva_acme": 1,
    "minerva_acme/acceleration": 5,
    "minerva_acme/distributions": 5,
    "minerva_acme/learners": 5,
    "minerva_acme/losses": 8,
    "minerva_acme/networks": 5,
    "minerva_acme/replay": 3,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description="Breaks copies of the tree on purpose and looks whether the tests notice. Without words "
        "it takes all quoted mutants and a sample of the generated ones.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        help="words of names or files: all of these mutants, quoted and generated",
    )
    parser.add_argument("--all", action="store_true", help="all generated mutants, not a sample (days)")
    parser.add_argument("--sample", type=int, help="generated mutants of each file (default: more for maths)")
    parser.add_argument("--generated", action="store_true", help="no quoted ones")
    parser.add_argument("--seed", type=int, default=0, help="another number gives another sample")
    parser.add_argument("--list", action="store_true", help="show the names and judge none")
    parser.add_argument(
        "--covered", action="store_true", help="list quoted mutants that are generated, moved or stale"
    )
    parser.add_argument(
        "--tidy", action="store_true", help="--covered, and take them out of mutants.py or to their new file"
    )
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time, each with a copy")
    parser.add_argument(
        "--minutes",
        type=float,
        help=f"the time after which none is begun ({_MINUTES}; without end with words)",
    )
    parser.add_argument("--output", type=pathlib.Path, help="a file for the table")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.covered or chosen.tidy:
            return tidy(mutants.MUTANTS, root=_ROOT, quoted_in=_QUOTED if chosen.tidy else None)
        found = choose(
            [] if chosen.generated else mutants.MUTANTS,
            generated.all_of(_ROOT),
            chosen.names,
            sample=chosen.sample,
            is_whole=chosen.all,
            seed=chosen.seed,
        )
        if chosen.list:
            print("\n".join(mutant.name for mutant in found))
            return 0
        unlimited = chosen.names or chosen.all
        minutes = chosen.minutes or (math.inf if unlimited else _MINUTES)
        return run(found, root=_ROOT, jobs=chosen.jobs, seconds=60.0 * minutes, output=chosen.output)
    except harness.Refused as error:
        print(error, file=sys.stderr)
        return 1


def choose(
    quoted: Sequence[harness.Mutant],
    made: Sequence[harness.Mutant],
    words: Sequence[str],
    *,
    sample: int | None = None,
    is_whole: bool = False,
    seed: int = 0,
) -> list[harness.Mutant]:
    """Chooses what to judge, and says how much of it all that is.

    Args:
        quoted: The quoted mutants.
        made: The generated ones.
        words: Words in the names or files of those to judge; without words, all quoted ones and a sample.
        sample: The number of generated ones of each file; by default all with words, and `_PER_FILE` without.
        is_whole: Whether to judge all generated ones.
        seed: Another number gives another sample.

    Raises:
        harness.Refused: A word is in no name and no file.
    """
    meant = [mutant for mutant in made if equivalent_name(mutant) not in equivalent.EQUIVALENT]
    found = select([*quoted, *meant], words)
    some = [mutant for mutant in found if mutant.at is not None]
    if not is_whole and (sample is not None or not words):
        some = draw(some, sample, seed)
    rest = [mutant for mutant in found if mutant.at is None]
    print(
        f"{len(rest)} of {len(quoted)} quoted mutants, and {len(some)} of {len(meant)} generated ones "
        f"({len(some) / max(1, len(meant)):.1%}); {len(made) - len(meant)} are left out as equivalent."
    )
    return [*rest, *some]


def equivalent_name(mutant: harness.Mutant) -> str:
    """A generated mutant's name as `equivalent.py` writes it."""
    return mutant.name.rpartition(" [")[0]


def draw(made: Iterable[harness.Mutant], sample: int | None, seed: int) -> list[harness.Mutant]:
    """Some mutants of each file, by chance, but the same ones for a seed as long as the file has them."""

    def chance(mutant: harness.Mutant) -> str:
        return hashlib.sha256(f"{seed} {mutant.name}".encode()).hexdigest()

    by_file: dict[str, list[harness.Mutant]] = {}
    for mutant in made:
        by_file.setdefault(mutant.file, []).append(mutant)
    drawn = [
        sorted(some, key=chance)[: _per_file(file) if sample is None else sample]
        for file, some in by_file.items()
    ]
    # One of each file, then the next of each: where time runs out, no file was left out.
    return [mutant for row in itertools.zip_longest(*drawn) for mutant in row if mutant is not None]


def _per_file(file: str) -> int:
    parents = (parent.as_posix() for parent in pathlib.PurePosixPath(file).parents)
    return next((_PER_FILE[parent] for parent in parents if parent in _PER_FILE), 1)


def select(all_mutants: Sequence[harness.Mutant], words: Sequence[str]) -> list[harness.Mutant]:
    """Those with one of the words in their name or file, or all where there are no words."""
    if not words:
        return [*all_mutants]
    found = {word: [m for m in all_mutants if word in m.name or word in m.file] for word in words}
    unknown = [word for word, some in found.items() if not some]
    if unknown:
        raise harness.Refused(f"There is no mutant with {unknown} in its name or file.")
    names = {mutant.name for some in found.values() for mutant in some}
    return [mutant for mutant in all_mutants if mutant.name in names]


def tidy(quoted: Sequence[harness.Mutant], *, root: pathlib.Path, quoted_in: pathlib.Path | None) -> int:
    """Lists quoted mutants that are generated, that moved and that are stale.

    Args:
        quoted: The quoted mutants.
        root: The tree's root.
        quoted_in: The file to take the first out of, and to write the second's new file into; or None.

    Returns:
        1 where one is stale, otherwise 0.
    """
    found = covered.look(quoted, root)
    for name, other in found.same.items():
        print(f"generated: {name}\n    as {other}")
    for name, file in found.moved.items():
        print(f"moved: {name}\n    to {file}")
    for problem in found.stale:
        print(f"stale: {problem}")
    names = {equivalent_name(mutant) for mutant in generated.all_of(root)}
    gone = sorted(equivalent.EQUIVALENT.keys() - names)
    for name in gone:
        print(f"not generated any more, but in equivalent.py: {name}")
    print(
        f"{len(quoted)} quoted: {len(found.same)} are generated, {len(found.moved)} moved, "
        f"{len(found.stale)} are stale; {len(gone)} equivalent ones are gone."
    )
    if quoted_in is not None:
        text = quoted_in.read_text(encoding="utf-8")
        text = covered.rewrite(text, remove=found.same, moved=found.moved)
        quoted_in.write_text(text, encoding="utf-8")
        subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", str(quoted_in)], check=True)
    return int(bool(found.stale or gone))


def run(
    chosen: list[harness.Mutant],
    *,
    root: pathlib.Path,
    files: list[str] | None = None,
    jobs: int = 1,
    seconds: float = math.inf,
    output: pathlib.Path | None = None,
) -> int:
    """Judges mutants and shows the table; returns 1 where one survived or could not be judged."""
    results = harness.judge(
        chosen,
        root=root,
        files=harness.tracked_files(root) if files is None else files,
        jobs=jobs,
        seconds=seconds,
        show=functools.partial(print, flush=True),
    )
    table = harness.table(results)
    if len(results) < len(chosen):
        table += f"\n{len(chosen) - len(results)} more were not begun, for want of time."
    print(f"\n{table}")
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(table + "\n", encoding="utf-8")
    return int(any(result.outcome != "killed" for result in results))


if __name__ == "__main__":
    sys.exit(main())
