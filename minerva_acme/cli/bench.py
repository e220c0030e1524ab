"""`minerva bench`."""

import pathlib
import subprocess
import sys

import minerva_acme
from minerva_acme.cli import commands


def run(command: commands.Bench, *, repository: pathlib.Path | None = None) -> int:
    """Runs the repository's benchmarks; returns the exit status.

    Args:
        command: what was typed.
        repository: where it is; None: around the installed package.

    Raises:
        ValueError: there is no repository, since the package was installed from a wheel; or a profile is
            asked for together with benchmarks.
    """
    repository = repository or pathlib.Path(minerva_acme.__file__).resolve().parents[1]
    if not (repository / "tests" / "benchmarks" / "__main__.py").exists():
        raise ValueError(
            "`minerva bench` needs the repository, whose benchmarks are not part of an installed package. "
            "In a clone of it: pip install -e '.[dev]' && minerva bench"
        )
    if command.profile and (command.names or command.seconds is not None):
        raise ValueError("`--profile` must stand alone, got names or seconds too. Run it by itself.")
    module = "tests.benchmarks.profile_step" if command.profile else "tests.benchmarks"
    options = [] if command.seconds is None else ["--seconds", str(command.seconds)]
    words = [sys.executable, "-m", module, *command.names, *options]
    # The status of a killed process is below 0.
    return int(subprocess.run(words, cwd=repository).returncode != 0)
