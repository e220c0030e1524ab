"""Lazy packages, which load a module when one of its names is first used.

So PyTorch, Gymnasium and Reverb are imported only when they are needed: `minerva --help` and a config
need none of them.
"""

import ast
import importlib
import importlib.util
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from minerva_acme.names import foreign_names


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns a `__getattr__` and a `__dir__` for a package's `__init__.py` (PEP 562).

    They offer the names that the file imports for type checkers, and those of `__all__`:

        if TYPE_CHECKING:
            from package import module
            from package.module import Name

        __getattr__, __dir__ = lazy.attach(__name__, __file__)

    Args:
        package: The package's `__name__`.
        file: The package's `__file__`.
    """
    blocks = [node for node in ast.parse(pathlib.Path(file).read_text()).body if isinstance(node, ast.If)]
    module_of = {
        alias.name: str(statement.module)
        for block in blocks
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }

    def load(name: str) -> Any:
        this = sys.modules[package]
        if name not in module_of:
            message = f"module '{package}' has no attribute '{name}'"
            # `from package import name` imports a module, or replaces the message of an AttributeError.
            is_module = importlib.util.find_spec(f"{package}.{name}") is not None
            if not is_module and (advice := foreign_names.table("advice").get(name)):
                raise ImportError(f"{message}. {advice}", name=package, path=file)
            raise AttributeError(message, name=name, obj=this)
        if module_of[name] == package:
            return importlib.import_module(f"{package}.{name}")
        value = getattr(importlib.import_module(module_of[name]), name)
        setattr(this, name, value)  # so that later look-ups skip this function
        return value

    def public_names() -> list[str]:
        return sorted({*vars(sys.modules[package])["__all__"], *module_of})

    return load, public_names
