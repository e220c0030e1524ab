"""Thread settings of PyTorch and numpy: how many threads they use and how these wait.

The settings are environment variables that the libraries read once, when they load. So they are set when
`minerva_acme` is imported, before anything in it imports torch or numpy, and child processes inherit
them. Values that the user has set are kept. The defaults suit machines with few cores.
"""

import os
import sys
from typing import NamedTuple


class Setting(NamedTuple):
    """The current value of a thread setting."""

    name: str  # the environment variable
    value: str
    is_default: bool  # set here, not by the user
    is_late: bool  # set after the library was loaded, which therefore uses a different value


def set_defaults() -> None:
    """Sets the variables that the user has not set."""
    for name, (library, value) in _defaults().items():
        if name not in os.environ:
            os.environ[name] = value
            _chosen[name] = library in sys.modules


def describe() -> list[Setting]:
    """Returns the settings, for display."""
    return [
        Setting(name, os.environ.get(name, "unset"), name in _chosen, _chosen.get(name, False))
        for name in _defaults()
    ]


def num_cores() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def recommended(num_cores: int) -> int:
    """Returns the number of PyTorch threads for a run that may use `num_cores` cores.

    That is one thread per core: on two cores, a learner step of MPO takes 0.63 of the time that it takes with
    one thread. More than eight threads are not known to help with networks of the sizes common in this field.
    """
    return min(num_cores, 8)


def _defaults() -> dict[str, tuple[str, str]]:
    """Returns, for each variable, the library that reads it and the default value."""
    return {
        # By default PyTorch's threads spin while they wait for each other. When other threads are busy
        # (the environment, Reverb's sampler), spinning takes the cores that they need: measured 2 to 20
        # times slower on two cores.
        "OMP_WAIT_POLICY": ("torch", "PASSIVE"),
        "OMP_NUM_THREADS": ("torch", str(recommended(num_cores()))),
        # Numpy multiplies one observation with a policy's weights in microseconds. Handing half of that
        # to another thread only makes it slower.
        "OPENBLAS_NUM_THREADS": ("numpy", "1"),
    }


_chosen: dict[str, bool] = {}  # the variables that were set here, and whether it was too late
