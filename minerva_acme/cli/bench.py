"""`minerva bench`."""

import ast
import pathlib
import subprocess
import sys
from collections.abc import Mapping

import minerva_acme
from minerva_acme.cli import choices, commands
from minerva_acme.cli.help_pages import wrap

_ALL = "all"


def run(command: commands.Bench, *, repository: pathlib.Path | None = None) -> int:
    """Runs the chosen benchmarks of the repository, or lists them all; returns the exit status.

    Args:
        command: The parsed command.
        repository: The repository's folder, or None for the one that contains the imported package.

    Raises:
        ValueError: There is no repository, because the package was installed from a wheel; there is no such
            benchmark, or none was chosen to be measured; or a profile was requested with others.
    """
    repository = repository or pathlib.Path(minerva_acme.__file__).resolve().parents[1]
    folder = repository / "tests" / "benchmarks"
    if not (folder / "__main__.py").exists():
        raise ValueError(
            "`minerva bench` needs a clone of the repository, because installed packages contain no "
            "benchmarks. In a clone, run: pip install -e '.[dev]' && minerva bench"
        )
    if command.profile and (command.names or command.seconds is not None):
        raise ValueError("`--profile` must be the only argument, got names or seconds too. Run it alone.")
    known = _describe(folder)
    for name in command.names:
        choices.choose("benchmark", name, (*known, _ALL))
    if command.seconds is not None and not command.names:
        raise ValueError(
            "`--seconds` must come with the benchmarks to run, got none. For all of them: minerva bench "
            f"{_ALL} --seconds {command.seconds:g}"
        )
    if not command.profile and not command.names:
        _list(known)
        return 0
    module = "tests.benchmarks.profile_step" if command.profile else "tests.benchmarks"
    names = () if _ALL in command.names else command.names
    options = [] if command.seconds is None else ["--seconds", str(command.seconds)]
    words = [sys.executable, "-m", module, *names, *options]
    # A killed process has a negative status.
    return int(subprocess.run(words, cwd=repository).returncode != 0)


def _describe(folder: pathlib.Path) -> Mapping[str, str]:
    """Returns the first line of each benchmark's file, by the benchmark's name; imports none."""
    files = sorted(folder.glob("bench_*.py"))
    words = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "" for path in files)
    return {
        path.stem.removeprefix("bench_"): text.partition("\n")[0]
        for path, text in zip(files, words, strict=True)
    }


def _list(known: Mapping[str, str]) -> None:
    width = max(map(len, known), default=0) + 2
    for name, words in known.items():
        print(wrap(words, " " * width, f"{name:{width}}"))
    print(f"To run some: minerva bench NAME...\nTo run all, which takes long: minerva bench {_ALL}")
    print("To see the parts of an actor's step: minerva bench --profile")
