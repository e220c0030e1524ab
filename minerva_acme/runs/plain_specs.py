"""Environment specs as plain values, so that a file can hold them.

A nest becomes `{"dict": {...}}`, `{"tuple": [...]}` or `{"list": [...]}`, and each spec in it
`{"array": {...}}`, `{"bounded": {...}}`, `{"discrete": {...}}` or `{"string": {...}}`.
"""

import math
from typing import Any

import numpy as np

from minerva_acme import specs, types
from minerva_acme.machine import reading

# Larger than any observation that a network here could take.
_MAX_ELEMENTS = 10_000_000


def pack(nest: types.NestedSpec) -> dict[str, Any]:
    """Converts a nest of specs to plain values.

    Raises:
        ValueError: The nest holds something other than dicts, tuples, lists and the specs of `dm_env`.
    """
    kind = type(nest)
    if kind is dict:
        return {"dict": {str(name): pack(part) for name, part in nest.items()}}
    if kind in (tuple, list):
        return {kind.__name__: [pack(part) for part in nest]}
    if kind is specs.StringArray:
        return {"string": {"shape": list(nest.shape), "name": nest.name}}
    if kind not in (specs.Array, specs.BoundedArray, specs.DiscreteArray):
        raise ValueError(f"A spec must be one of `minerva_acme.specs`, got {nest!r}.")
    values: dict[str, Any] = {"dtype": np.dtype(nest.dtype).name, "name": nest.name}
    if kind is specs.DiscreteArray:
        return {"discrete": {"num_values": int(nest.num_values), **values}}
    values["shape"] = list(nest.shape)
    if kind is specs.Array:
        return {"array": values}
    return {"bounded": {"minimum": _shortest(nest.minimum), "maximum": _shortest(nest.maximum), **values}}


def unpack(values: Any) -> types.NestedSpec:
    """Makes the nest of specs that `pack` converted.

    Raises:
        ValueError: The values describe no spec, or one of more than 10 million numbers.
    """
    try:
        ((kind, content),) = values.items()
        if kind == "dict":
            return {name: unpack(part) for name, part in content.items()}
        if kind in ("tuple", "list"):
            parts = [unpack(part) for part in content]
            return tuple(parts) if kind == "tuple" else parts
        if not 0 <= math.prod(content.get("shape", [])) <= _MAX_ELEMENTS:
            raise ValueError(f"a shape of at most {_MAX_ELEMENTS:,} numbers must be given")
        if np.dtype(content.get("dtype", bool)).kind not in "biuf":
            raise ValueError("the dtype must be numeric")
        make = {
            "array": specs.Array,
            "bounded": specs.BoundedArray,
            "discrete": specs.DiscreteArray,
            "string": specs.StringArray,
        }[kind]
        return make(**content)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"The values must describe a spec, got {str(values)[:200]} ({reading.why(error)})."
        ) from error


def _shortest(bound: np.ndarray) -> Any:
    """Returns a bound as lists of numbers, or as one number if all are equal."""
    same = bound.size > 0 and bool((bound == bound.flat[0]).all())
    return bound.flat[0].item() if same else bound.tolist()
