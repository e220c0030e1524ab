"""Installs minerva-acme in the other Pythons that it supports and that are here, and runs its tests there.

python -m tests.other_pythons [--if-installable] [3.12 3.13] [-- ARGUMENTS OF PYTEST]

With --if-installable one that the packages cannot be installed for, as without a network, is named and not
tested. Each gets a copy of the repository and a virtual environment in a temporary folder. PyTorch for CUDA,
which is what pip chooses for them, takes 5 GB of it while the tests run. Neither has Reverb. On Python 3.13,
dm_control is installed without labmaze by the line of docs/installing.md.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

PYTHONS = ("3.12", "3.13")
_IGNORED = shutil.ignore_patterns(
    ".git", ".venv", ".*_cache", "__pycache__", "*.egg-info", "build", "dist", "shared"
)


def copy_sources(repository: pathlib.Path, target: pathlib.Path) -> None:
    """Copies the repository, without what was made in it: builds, caches and runs."""

    def ignored(folder: str, names: list[str]) -> set[str]:
        return _IGNORED(folder, names) | ({"runs"} if pathlib.Path(folder) == repository else set())

    shutil.copytree(repository, target, ignore=ignored)


def find(version: str) -> str | None:
    """Returns the path of a Python of this version that runs, or None."""
    root = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    installed = sorted(root.glob(f"versions/{version}.*/bin/python{version}"))
    # Where several are installed beside each other, the command may be there and not be one that works.
    for path in (shutil.which(f"python{version}"), *map(str, installed)):
        if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            return path
    return None


def without_labmaze(repository: pathlib.Path) -> str:
    """The line of the page on installing that installs dm_control without labmaze."""
    page = (repository / "docs" / "installing.md").read_text()
    (line,) = re.findall(r"^pip install .* --no-deps dm_control.*$", page, re.MULTILINE)
    return line


def test(python: str, arguments: list[str], *, must_install: bool) -> bool:
    """Runs the tests with an interpreter; returns whether all went well."""
    repository = pathlib.Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as folder:
        copy, environment = pathlib.Path(folder, "copy"), pathlib.Path(folder, "venv")
        copy_sources(repository, copy)
        temporary = pathlib.Path(folder, "tmp")
        temporary.mkdir()
        own = str(environment / "bin" / "python")
        path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
        variables = {**os.environ, "TMPDIR": str(temporary), "VIRTUAL_ENV": str(environment), "PATH": path}
        for words in (
            [python, "-m", "venv", str(environment)],
            [own, "-m", "pip", "install", "--quiet", "-c", "constraints.txt", "-e", ".[dev]"],
            [own, "-m", "pip", "check"],
            ["sh", "-c", f"{own} -c 'import dm_control' || ({without_labmaze(copy)})"],
            [own, "-m", "pytest", "-m", "not learning and not ray and not compile", *arguments],
        ):
            began = time.monotonic()
            status = subprocess.run(words, cwd=copy, env=variables).returncode
            print(f"{' '.join(words[1:4])}: {time.monotonic() - began:.0f} s, status {status}", flush=True)
            if status and "install" in words and not must_install:
                print("Its packages could not be installed, so it is not tested.", flush=True)
                return True
            if status:
                return False
    return True


def main() -> int:
    """Tests what is asked for; returns 1 where something failed, and says which Pythons are missing."""
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    must_install = "--if-installable" not in words[:split]
    failed = False
    for version in [word for word in words[:split] if not word.startswith("-")] or PYTHONS:
        python = find(version)
        print(f"Python {version}: {python or 'there is none here, so it is not tested'}", flush=True)
        if python is not None:
            failed |= not test(python, words[split + 1 :], must_install=must_install)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
