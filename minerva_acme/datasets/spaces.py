"""Gymnasium's spaces as Minari writes them in JSON, to and from dm_env's specs.

    Array, BoundedArray      Box, with infinite bounds for an Array
    DiscreteArray            Discrete, counted from 0
    dict, tuple or list      Dict, Tuple

Reading also takes MultiDiscrete and MultiBinary, as bounded integers, and a Discrete with another start, from
which the numbers are then counted.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from minerva_acme import specs, types
from minerva_acme.machine import reading

PART = "_index_"
"""What the name of a part of a tuple begins with, before its index."""


def to_json(spec: types.NestedSpec, name: str) -> str:
    """Returns the space of a nest of specs.

    Raises:
        ValueError: A leaf has no space, or a name that the file cannot hold; the message names it.
    """
    return json.dumps(_pack(spec, name))


def _pack(spec: types.NestedSpec, name: str) -> dict[str, Any]:
    match spec:
        case Mapping():
            for field in spec:
                check_name(field, name)
            return {
                "type": "Dict",
                "subspaces": {field: _pack(part, f"{name}[{field!r}]") for field, part in spec.items()},
            }
        case tuple() | list():
            return {
                "type": "Tuple",
                "subspaces": [_pack(part, f"{name}[{i}]") for i, part in enumerate(spec)],
            }
        case specs.DiscreteArray():
            dtype = np.dtype(spec.dtype).name
            return {"type": "Discrete", "dtype": dtype, "start": 0, "n": int(spec.num_values)}
        case specs.Array() if np.dtype(spec.dtype).kind in "biuf":
            low, high = specs.limits(spec)
            dtype = np.dtype(spec.dtype).name
            shape = list(spec.shape)
            return {"type": "Box", "dtype": dtype, "shape": shape, "low": low.tolist(), "high": high.tolist()}
    raise ValueError(
        f"`{name}` must be numbers to be recorded, got {specs.describe(spec)}. Leave it out, or encode it, "
        "in a wrapper of the environment."
    )


def check_name(field: Any, name: str) -> None:
    """Checks that a field's name can be one in a file.

    Raises:
        ValueError: It cannot.
    """
    if not isinstance(field, str) or not field or "/" in field or field == "." or field.startswith(PART):
        raise ValueError(
            f"The fields of `{name}` must have names without '/' that do not begin with '{PART}', got "
            f"{field!r}. Rename it in a wrapper of the environment."
        )


def from_json(text: str, name: str) -> types.NestedSpec:
    """Returns the nest of specs of a space.

    Raises:
        ValueError: The text describes no space that has a spec.
    """
    try:
        return _unpack(reading.json_text(text, infinite=True), name)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(
            f"The space of `{name}` must be made of Box, Discrete, MultiDiscrete, MultiBinary, Dict and "
            f"Tuple, got {text[:200]} ({reading.why(error)})."
        ) from error


def starts(text: str) -> types.NestedArray:
    """Returns where each part of a space begins, as a nest of numbers: a Discrete's start, or 0."""

    def unpack(space: dict[str, Any]) -> types.NestedArray:
        match space["type"]:
            case "Dict":
                return {key: unpack(part) for key, part in space["subspaces"].items()}
            case "Tuple":
                return tuple(map(unpack, space["subspaces"]))
        return int(space["start"]) if space["type"] == "Discrete" else 0

    return unpack(reading.json_text(text, infinite=True))


def _unpack(space: dict[str, Any], name: str) -> types.NestedSpec:
    match space["type"]:
        case "Dict":
            return {key: _unpack(part, f"{name}/{key}") for key, part in space["subspaces"].items()}
        case "Tuple":
            return tuple(_unpack(part, f"{name}/{i}") for i, part in enumerate(space["subspaces"]))
        case "Discrete":
            return specs.DiscreteArray(int(space["n"]), dtype=np.dtype(space["dtype"]), name=name)
        case "MultiDiscrete":
            dtype = np.dtype(space["dtype"])
            low, num = (np.asarray(space[key], dtype) for key in ("start", "nvec"))
            return specs.BoundedArray(num.shape, dtype, low, low + num - 1, name=name)
        case "MultiBinary":
            return specs.BoundedArray(tuple(np.atleast_1d(space["n"])), np.int8, 0, 1, name=name)
        case "Box":
            shape, dtype = tuple(space["shape"]), np.dtype(space["dtype"])
            low, high = (np.asarray(space[key], dtype) for key in ("low", "high"))
            if dtype.kind == "b" or (np.isinf(low).all() and np.isinf(high).all()):
                return specs.Array(shape, dtype, name=name)
            return specs.BoundedArray(shape, dtype, low, high, name=name)
    raise ValueError(f"'{space['type']}' has no spec")
