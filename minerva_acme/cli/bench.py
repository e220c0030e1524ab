"""`minerva bench`."""

import pathlib
import subprocess
import sys

import minerva_acme
from minerva_acme.cli import commands


def run(command: commands.Bench, *, repository: pathlib.Path | None = None) -> int:
    """Runs the repository's benchmarks; returns the exit status.

    Args:
        command: The parsed command.
        repository: The repository's folder, or None for the one that contains the imported package.

    Raises:
        ValueError: There is no repository, because the package was installed from a wheel; or a profile and
            benchmarks were requested together.
    """
    repository = repository or pathlib.Path(minerva_acme.__file__).resolve().parents[1]
    if not (repository / "tests" / "benchmarks" / "__main__.py").exists():
        raise ValueError(
            "`minerva bench` needs a clone of the repository, because installed packages contain no "
            "benchmarks. In a clone, run: pip install -e '.[dev]' && minerva bench"
        )
    if command.profile and (command.names or command.seconds is not None):
        raise ValueError("`--profile` must be the only argument, got names or seconds too. Run it alone.")
    module = "tests.benchmarks.profile_step" if command.profile else "tests.benchmarks"
    options = [] if command.seconds is None else ["--seconds", str(command.seconds)]
    words = [sys.executable, "-m", module, *command.names, *options]
    # A killed process has a negative status.
    return int(subprocess.run(words, cwd=repository).returncode != 0)
