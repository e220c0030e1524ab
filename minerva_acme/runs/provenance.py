"""The versions and the machine of a run's sessions: `provenance.json` in its folder.

A session gets an entry if it differs from the one before it.
"""

import functools
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import subprocess
from typing import Any

import torch

from minerva_acme import _version
from minerva_acme.machine import reading, threads, writing
from minerva_acme.names import readable

FILE = "provenance.json"

_GIT_SECONDS = 10.0


def note(directory: pathlib.Path) -> None:
    """Adds the versions and the machine of this session, unless the session before it had the same ones."""
    sessions = read(directory)
    if not sessions or sessions[-1] != describe():
        text = json.dumps([*sessions, describe()], indent=2) + "\n"
        writing.replace(directory / FILE, [text.encode()])


def read(directory: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the entries of a run's sessions, or an empty list for a run of an older version.

    Raises:
        ValueError: The file is malformed.
    """
    path = directory / FILE
    if not path.exists():
        return []
    try:
        sessions = reading.json_file(path)
        read = [{name: session[name] for name in _NAMES} for session in sessions]
        for session in read:
            packages = session["packages"]
            texts = [
                *packages,
                *packages.values(),
                *filter(None, map(session.get, ("version", "commit", "machine"))),
            ]
            if not all(isinstance(text, str) for text in texts):
                raise TypeError("its values must be strings")
        return read
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} must list the versions and the machine that the run was made with: "
            f"{reading.why(error)}. Remove the file to continue without them."
        ) from error


def describe() -> dict[str, Any]:
    """Returns version, commit, the versions of required packages, and the machine."""
    num_torch_threads = torch.get_num_threads()
    machine = [
        _cpu_model(),
        f"{threads.num_cores()} cores",
        readable.count(num_torch_threads, "torch thread"),
        *([torch.cuda.get_device_name()] if torch.cuda.is_available() else []),
        f"{platform.system()} {platform.machine()}",
    ]
    return dict(zip(_NAMES, (_version.__version__, _commit(), _packages(), ", ".join(machine)), strict=True))


_NAMES = ("version", "commit", "packages", "machine")


@functools.cache
def _packages() -> dict[str, str]:
    try:
        required = importlib.metadata.requires("minerva-acme") or []
    except importlib.metadata.PackageNotFoundError:  # on sys.path, not installed
        required = []
    names = {re.split(r"[^\w.-]", line)[0] for line in required if "extra ==" not in line}
    found = {"python": platform.python_version()}
    for name in sorted(names, key=str.lower):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # not for this platform
            continue
    return found


@functools.cache
def _commit() -> str | None:
    """Returns the commit of the clone that this package runs from, with -dirty if files were changed."""
    root = pathlib.Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude", "*", "--abbrev=12"],
            cwd=root,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _cpu_model() -> str:
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.processor() or "an unknown CPU"
