"""What a process takes of the machine's memory."""

import os
import pathlib


def resident_mb() -> float:
    """What this process has in memory, alone or with others, in MB; 0 where the system does not tell."""
    try:
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
