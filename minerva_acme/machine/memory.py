"""The memory of this machine: the total, how much is free, and how much this process uses."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

_ROOT = pathlib.Path("/")


def total_bytes() -> int:
    """Returns the most bytes that this process may use: the machine's memory, or less in a container."""
    return min(_of_machine("MemTotal"), *(limit for limit, _ in _groups()))


def free_bytes() -> int:
    """Returns the number of bytes that this process can still use before the system kills it."""
    return min(_of_machine("MemAvailable"), *(max(0, limit - used) for limit, used in _groups()))


def resident_bytes() -> int:
    """Returns the resident memory of this process in bytes, shared pages included; 0 if it is unknown."""
    try:
        pages = int((_ROOT / "proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def describe(num_bytes: float) -> str:
    """Formats a number of bytes, for example as "21.2 GB"."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:,.1f} TB"


def _of_machine(name: str) -> int:
    with contextlib.suppress(OSError):
        for line in (_ROOT / "proc/meminfo").read_text().splitlines():
            key, value, *_ = line.split()
            if key == f"{name}:":
                return int(value) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # free memory is unknown: the total


def _groups() -> Iterator[tuple[int, int]]:
    """Yields the memory limit of each control group of this process, and the bytes used there."""
    yield 1 << 62, 0
    with contextlib.suppress(OSError):
        for line in (_ROOT / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                root, limit, used, cache = "", "memory.max", "memory.current", "inactive_file"
            elif "memory" in controllers.split(","):
                root, limit, used = "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
                cache = "total_inactive_file"
            else:
                continue
            # A container sees its own group as the root, whatever the path of its process is.
            for part in ("/", *pathlib.PurePath(path).parents, path):
                folder = _ROOT / "sys/fs/cgroup" / root / str(part).lstrip("/")
                with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
                    statistics = dict(
                        line.split() for line in (folder / "memory.stat").read_text().splitlines()
                    )
                    taken = int((folder / used).read_text()) - int(statistics.get(cache, 0))
                    yield int((folder / limit).read_text()), taken
