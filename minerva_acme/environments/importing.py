"""Imports of modules that may load MuJoCo, with a renderer that works on this machine.

Importing dm_control or MuJoCo fixes the renderer of the process.
"""

import contextlib
import importlib
import logging
import os
import sys
import threading
from collections.abc import Iterator
from types import ModuleType

_RENDERER, _PLATFORM = "MUJOCO_GL", "PYOPENGL_PLATFORM"


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
