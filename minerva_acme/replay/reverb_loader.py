"""The one place where Reverb is imported."""

import importlib
import importlib.metadata
import os
import warnings
from types import ModuleType

from minerva_acme.replay import base

SUPPORTED_VERSION = "0.14.0"


def load() -> ModuleType:
    """Returns Reverb's own bindings, the module `reverb.pybind`.

    The first call takes seconds, for Reverb imports TensorFlow.

    Raises:
        ImportError: Reverb is not installed.
        ReplayError: it is installed in a version whose bindings are not known.
    """
    try:
        version = importlib.metadata.version("dm-reverb")
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(
            f"Replay needs Reverb, which is not installed. Its last release, {SUPPORTED_VERSION}, has "
            "wheels for Python 3.11 on x86-64 Linux: create an environment with that and run "
            f"`pip install 'dm-reverb[tensorflow]=={SUPPORTED_VERSION}'`."
        ) from None
    if version != SUPPORTED_VERSION:
        raise base.ReplayError(
            f"Reverb must be version {SUPPORTED_VERSION}, the last one released, got {version}. Run "
            f"`pip install 'dm-reverb[tensorflow]=={SUPPORTED_VERSION}'`."
        )
    # TensorFlow's start-up log: dozens of lines about what this machine could have.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module("reverb.pybind")
