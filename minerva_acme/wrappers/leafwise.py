"""A function for each leaf of a nest."""

import functools
from collections.abc import Callable
from typing import Any

import tree

from minerva_acme import types


def apply_each(functions: types.NestedArray) -> Callable[[types.NestedArray], types.NestedArray]:
    """Makes one function of nests from a nest of functions of their leaves."""
    if callable(functions):  # the usual case; `tree` takes ten times as long
        return functions
    return functools.partial(tree.map_structure, _call, functions)


def _call(function: Callable[[Any], Any], value: Any) -> Any:
    return function(value)
