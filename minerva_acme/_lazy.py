"""Packages that load a module when one of its names is first used.

What needs torch, Gymnasium or Reverb is so imported by those who use it, and by nobody else:
`minerva --help` and a config need none of them.
"""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def attach(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Returns a `__getattr__` for a package's `__init__.py` (PEP 562).

    Args:
        package: its `__name__`.
        modules: the names that each of its modules provides.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(importlib.import_module(f"{package}.{module_of[name]}"), name)
        setattr(sys.modules[package], name, value)  # found without this function from now on
        return value

    return load
