"""`minerva bench`."""

import pathlib
import subprocess
import sys
from collections.abc import Sequence

import minerva_acme


def run(
    names: Sequence[str],
    *,
    seconds: float | None = None,
    profile: bool = False,
    repository: pathlib.Path | None = None,
) -> int:
    """Runs the repository's benchmarks; returns the exit status.

    Args:
        names: which; none: all.
        seconds: of measurement, each; None: the benchmarks' own choice.
        profile: whether to show instead where the time of an actor's step goes.
        repository: where it is; None: around the installed package.

    Raises:
        ValueError: there is no repository, since the package was installed from a wheel; or a profile is
            asked for together with benchmarks.
    """
    if repository is None:
        repository = pathlib.Path(minerva_acme.__file__).resolve().parents[1]
    if not (repository / "tests" / "benchmarks" / "__main__.py").exists():
        raise ValueError(
            "`minerva bench` needs the repository, whose benchmarks are not part of an installed package. "
            "In a clone of it: pip install -e '.[dev]' && minerva bench"
        )
    if profile and (names or seconds is not None):
        raise ValueError("`--profile` must stand alone, got names or seconds too. Run it by itself.")
    module = "tests.benchmarks.profile_step" if profile else "tests.benchmarks"
    options = [] if seconds is None else ["--seconds", str(seconds)]
    command = [sys.executable, "-m", module, *names, *options]
    # Of a killed process the status is below 0.
    return 0 if subprocess.run(command, cwd=repository).returncode == 0 else 1
