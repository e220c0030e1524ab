"""Imports of modules that may load MuJoCo, with a renderer that works on this machine.

Importing dm_control or MuJoCo fixes the renderer of the process.

dm_control 1.0.50 was written for MuJoCo 3: it has a list of the fields of MuJoCo's model and data, and reads
each of them whenever it makes a physics. MuJoCo 4 no longer has nine of them, of flexes, which no task reads.
With this module imported, the list has only fields that exist.
"""

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from types import ModuleType

_RENDERER, _PLATFORM = "MUJOCO_GL", "PYOPENGL_PLATFORM"
_FIELDS = "dm_control.mujoco.wrapper.mjbindings.sizes"

_DEPRECATED = "compiler attribute 'settotalmass' is deprecated"

_logger = logging.getLogger(__name__)
_making = threading.RLock()  # MuJoCo has one handler of warnings


@contextlib.contextmanager
def others_model() -> Iterator[None]:
    """Leaves out, while a model of dm_control's or Gymnasium's own is made, what only its authors can change.

    MuJoCo warns of an attribute of the cheetahs each time that one is compiled.
    """
    try:
        import mujoco
    except ImportError:  # said by whoever needs it
        yield
        return

    def say(message: str) -> None:
        if not message.startswith(_DEPRECATED):
            _logger.warning("MuJoCo: %s", message)

    with _making:
        before = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(say)
        try:
            yield
        finally:
            mujoco.set_mju_user_warning(before)


def load_triton_first() -> None:
    """Loads triton, which torch's CUDA build installs, before OpenGL draws.

    Mesa's drivers and triton each contain an LLVM. If triton is loaded second, as the first optimiser would
    do, the process crashes.
    """
    with contextlib.suppress(ImportError):
        importlib.import_module("triton")


def import_with_renderer(name: str) -> ModuleType:
    """Imports a module that may import dm_control or MuJoCo.

    Without a display, dm_control would choose GLFW, which prints a warning and cannot render. EGL renders off
    screen; if it is missing too, rendering is disabled, which training does not need.
    """
    load_triton_first()
    settled = _RENDERER in os.environ or {name, "dm_control.suite"} & set(sys.modules)
    has_display = any(os.environ.get(variable) for variable in ("DISPLAY", "WAYLAND_DISPLAY"))
    if settled or has_display or sys.platform != "linux":
        return importlib.import_module(name)
    pyopengl_platform = os.environ.get(_PLATFORM)
    os.environ[_RENDERER] = "egl"
    try:
        return importlib.import_module(name)
    except Exception:  # PyOpenGL fails in many ways; an error with another cause is raised again below
        if not {"OpenGL", "dm_control", "mujoco"} & set(sys.modules):
            raise
        os.environ[_RENDERER] = "disabled"
        if pyopengl_platform is None:
            os.environ.pop(_PLATFORM, None)  # dm_control set it
        return importlib.import_module(name)
    finally:
        if "mujoco" not in sys.modules:  # nothing is fixed yet
            os.environ.pop(_RENDERER, None)


def _leave_out_missing(fields: ModuleType) -> None:
    """Removes fields that the installed MuJoCo does not have from dm_control's list."""
    import mujoco

    for name, struct in (("mjmodel", mujoco.MjModel), ("mjdata", mujoco.MjData)):
        listed = fields.array_sizes[name]
        for missing in [field for field in listed if not hasattr(struct, field)]:
            del listed[missing]


class _FieldsLoader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        _leave_out_missing(module)


class _FieldsFinder(importlib.abc.MetaPathFinder):
    """Finds dm_control's list of fields, and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        found = importlib.machinery.PathFinder.find_spec(fullname, path) if fullname == _FIELDS else None
        if found is None or found.origin is None:
            return None
        return importlib.util.spec_from_file_location(
            fullname, found.origin, loader=_FieldsLoader(fullname, found.origin)
        )


if _FIELDS in sys.modules:
    _leave_out_missing(sys.modules[_FIELDS])
else:
    sys.meta_path.insert(0, _FieldsFinder())
