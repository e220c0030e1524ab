"""The import of Reverb. No other module imports it."""

import ctypes
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import logging
import os
import pathlib
import sys
import threading
import warnings
from types import ModuleType

import numpy  # noqa: F401 -- must be loaded before TensorFlow's library, or its C code crashes

from minerva_acme.replay import base

_logger = logging.getLogger(__name__)

SUPPORTED_VERSION = "0.14.0"
# Set to "plain" to import Reverb in the official way, with TensorFlow.
LOADER_VARIABLE = "MINERVA_REVERB_LOADER"

_TENSORFLOW_VERSION = "2.15."  # the version that the bindings were built against
_BINDINGS = "reverb.libpybind"
_MIN_DESCRIPTORS = 64  # a server and a few clients in one process need about 20
_ENOUGH_DESCRIPTORS = 1024  # each actor that connects needs one
_lock = threading.Lock()


def load() -> ModuleType:
    """Returns Reverb's bindings.

    `import reverb` imports all of TensorFlow, which takes seconds and hundreds of megabytes. The bindings
    themselves need only one of its shared libraries, so with known versions only that library is loaded.
    `import reverb` still works afterwards and shares the bindings.

    Raises:
        ImportError: Reverb is not installed.
        ReplayError: The installed version of Reverb is not supported.
    """
    with _lock:
        if _BINDINGS in sys.modules:
            return sys.modules[_BINDINGS]
        _check_version()
        # Silences TensorFlow's start-up log: dozens of lines about hardware that this machine could have.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        if os.environ.get(LOADER_VARIABLE) != "plain" and "tensorflow" not in sys.modules:
            try:
                return _load_bindings_alone()
            except (ImportError, OSError) as error:
                sys.modules.pop(_BINDINGS, None)
                _logger.debug("importing Reverb with TensorFlow, since without: %s", error)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            importlib.import_module("reverb")
        return sys.modules[_BINDINGS]


def ensure_descriptors() -> None:
    """Ensures that gRPC can open enough files; otherwise it would hang or abort the process.

    If fewer than 1024 are left, the soft limit is raised as far as the hard limit allows.

    Raises:
        ReplayError: Too few are left.
    """
    import resource  # not on Windows, where there is no Reverb

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    num_open = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    if soft == resource.RLIM_INFINITY or soft - num_open >= _ENOUGH_DESCRIPTORS:
        return
    wanted = num_open + _ENOUGH_DESCRIPTORS
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if most > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        _logger.debug("the limit of open files is raised from %d to %d", soft, most)
    if max(most, soft) - num_open < _MIN_DESCRIPTORS:
        raise base.ReplayError(
            f"Reverb needs at least {_MIN_DESCRIPTORS} more open files, but this process has {num_open} and "
            f"may have {max(most, soft)}. Raise the limit in the shell that starts it: ulimit -n 4096"
        )


def _check_version() -> None:
    way_out = (
        f"Its last release, {SUPPORTED_VERSION}, has wheels for Python 3.11 and older on x86-64 Linux: in "
        f"an environment with that, run `pip install 'dm-reverb[tensorflow]=={SUPPORTED_VERSION}'`."
    )
    try:
        version = importlib.metadata.version("dm-reverb")
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(f"Replay needs Reverb, which is not installed. {way_out}") from None
    if version != SUPPORTED_VERSION:
        raise base.ReplayError(f"Reverb must be version {SUPPORTED_VERSION}, got {version}. {way_out}")


def _load_bindings_alone() -> ModuleType:
    version = importlib.metadata.version("tensorflow")
    if not version.startswith(_TENSORFLOW_VERSION):
        raise ImportError(f"TensorFlow is {version}, not {_TENSORFLOW_VERSION}*")
    # Local to this library and those that link to it: its many symbols must not replace others.
    ctypes.CDLL(str(_folder("tensorflow") / "libtensorflow_framework.so.2"), mode=ctypes.RTLD_LOCAL)
    path = str(_folder("reverb") / "libpybind.so")
    loader = importlib.machinery.ExtensionFileLoader(_BINDINGS, path)
    spec = importlib.util.spec_from_file_location(_BINDINGS, path, loader=loader)
    if spec is None:
        raise ImportError(f"{path} cannot be loaded")
    bindings = importlib.util.module_from_spec(spec)
    loader.exec_module(bindings)
    sys.modules[_BINDINGS] = bindings
    return bindings


def _folder(package: str) -> pathlib.Path:
    """Returns the folder of an installed package, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ImportError(f"{package} is not installed")
    return pathlib.Path(spec.origin).parent
