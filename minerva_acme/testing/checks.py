"""Checks that name what is wrong."""

import io
from typing import Any

import numpy as np
import torch
import tree

from minerva_acme import core, specs, types


def check_conforms(name: str, value: types.NestedArray, spec: types.NestedSpec) -> None:
    """Checks a nest against its spec.

    Raises:
        ValueError: it does not conform; the message names the leaf and both sides.
    """
    try:
        tree.assert_same_structure(spec, value)
    except (TypeError, ValueError) as error:
        expected = tree.map_structure(specs.describe, spec)
        raise ValueError(f"`{name}` must have the structure {expected}, got {value!r}.") from error
    for (path, leaf_spec), leaf in zip(tree.flatten_with_path(spec), tree.flatten(value), strict=True):
        leaf_name = name + "".join(f"[{key!r}]" for key in path)
        expected = specs.describe(leaf_spec)
        try:
            leaf_spec.validate(leaf)
        except ValueError as error:
            raise ValueError(f"`{leaf_name}` must be {expected}, got {leaf!r}: {error}") from error
        if np.issubdtype(leaf_spec.dtype, np.floating) and not np.isfinite(leaf).all():
            raise ValueError(f"`{leaf_name}` must be {expected} and finite, got {leaf!r}.")


def assert_nests_equal(actual: Any, expected: Any) -> None:
    """Asserts that two nests of arrays, tensors, numbers and strings are equal to the last bit."""
    tree.assert_same_structure(actual, expected)
    for (path, left), right in zip(tree.flatten_with_path(actual), tree.flatten(expected), strict=True):
        np.testing.assert_array_equal(_to_array(left), _to_array(right), err_msg=f"at {path}")


def through_a_file(state: core.State) -> core.State:
    """The state as a checkpoint gives it back: written, and read without executing any code in it."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def _to_array(leaf: Any) -> np.ndarray:
    return np.asarray(leaf.detach().cpu() if isinstance(leaf, torch.Tensor) else leaf)
