"""How many threads the libraries below use, and how they wait: settings for machines with few cores.

They are environment variables that the libraries read once, when they load. So they are set when
`minerva_acme` is imported, before anything in it imports torch or numpy, and hold for child processes
too. A value that the user has set stays.
"""

import os
import sys
from typing import NamedTuple


class Setting(NamedTuple):
    """A thread setting as it is now."""

    name: str  # of the environment variable
    value: str
    is_default: bool  # chosen here, and not by the user
    is_late: bool  # set after the library that reads it was loaded, which went by another value


def set_defaults() -> None:
    """Sets what the user has not set."""
    for name, (library, value) in _defaults().items():
        if name not in os.environ:
            os.environ[name] = value
            _chosen[name] = library in sys.modules


def describe() -> list[Setting]:
    """Returns the settings, for people to see."""
    return [
        Setting(name, os.environ.get(name, "unset"), name in _chosen, _chosen.get(name, False))
        for name in _defaults()
    ]


def num_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def recommended(num_cores: int) -> int:
    """Torch threads for a run that may use so many cores.

    One a core: on two cores MPO trained in three quarters of the time that it took with one, for the same
    CPU time, Reverb's own threads beside it, V-MPO in 0.8, and PPO in as much. Networks of the sizes
    of this field are not known to gain by more than eight.
    """
    return min(num_cores, 8)


def _defaults() -> dict[str, tuple[str, str]]:
    """Variable, and the library that reads it, and its value."""
    return {
        # Torch's threads otherwise spin while they wait for each other. Beside any other busy thread
        # (the environment, Reverb's sampler) spinning takes the cores that the work needs: measured 2
        # to 20 times slower on two cores.
        "OMP_WAIT_POLICY": ("torch", "PASSIVE"),
        "OMP_NUM_THREADS": ("torch", str(recommended(num_cores()))),
        # Numpy multiplies one observation with a policy's weights in microseconds, which handing half
        # of it to another thread only delays.
        "OPENBLAS_NUM_THREADS": ("numpy", "1"),
    }


_chosen: dict[str, bool] = {}  # variables that were set here, and whether that was too late
