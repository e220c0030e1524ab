"""A function for each leaf of a nest."""

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import tree

from minerva_acme import types


def apply_each(functions: types.NestedArray) -> Callable[[types.NestedArray], types.NestedArray]:
    """Makes one function of nests from a nest of functions for the leaves."""
    if callable(functions):  # the usual case; `tree` takes ten times as long
        return functions
    return functools.partial(tree.map_structure, operator.call, functions)


def same(value: Any) -> Any:
    """Returns a leaf as it is."""
    return value


def copy(nest: types.NestedArray) -> types.NestedArray:
    """Returns a nest whose arrays are copies; other leaves are the same.

    Environments get their actions this way, so that they cannot change the actor's action, which is stored.
    """
    if isinstance(nest, (np.ndarray, np.generic)):  # the usual case; `tree` takes ten times as long
        return nest.copy()
    return tree.map_structure(_copy_leaf, nest)


def _copy_leaf(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value
