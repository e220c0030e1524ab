"""A nest of one step as a few flat rows: a store handles one wide column far faster than many.

{"position": float32 [3], "step": int32 [], "pixels": uint8 [64, 64, 3], "velocity": float32 [2]}

column "float32"  [5]           | position . . | velocity . |
column "int32"    [1]           | step |
column "pixels"   [64, 64, 3]   the image as it is
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
import tree

from minerva_acme import constraints, specs, types
from minerva_acme.replay import base

Rows: TypeAlias = dict[str, np.ndarray]

_IMAGE_NDIM = 3
_ARRAYS = (np.ndarray, np.generic)
_WARNS_OF_DOT = np.lib.NumpyVersion(np.__version__) >= "2.0.0"  # where a product overflows


def square(row: np.ndarray) -> Any:
    """The sum of a row's squares, infinite where that is too much for its dtype."""
    if _WARNS_OF_DOT:
        with np.errstate(over="ignore"):  # two microseconds with older versions, which need it not
            return row.dot(row)
    return row.dot(row)


def is_storable(row: np.ndarray) -> bool:
    """Whether all numbers of a floating-point row are finite, and in float32 within `constraints.LARGEST`."""
    # The square tells of a nan and of a large number too. That takes a fourth of the time.
    return bool(square(row) <= constraints.LARGEST) or bool(_is_storable(row).all())


class RowPacker:
    """Packs nests that conform to a spec into one row per dtype, and unpacks batches of such rows.

    Leaves with three axes or more, images, get a column of their own, named by their path. Every
    leaf keeps its dtype, but those that are to be stored in single precision. What does not conform is
    refused, so that what is stored can be trusted; bounds are checked only where that is asked for.
    """

    def __init__(
        self,
        spec: types.NestedSpec,
        name: str = "",
        *,
        single: Collection[str] = (),
        bounded: Collection[str] = (),
    ) -> None:
        """Plans the columns.

        Args:
            spec: a nest of `dm_env` specs.
            name: what the nest is called, in errors and in the names of columns; may be left out
                where the nest names its fields itself.
            single: outermost fields that are stored as float32, whatever their dtype.
            bounded: outermost fields that must be within the bounds of their specs, if these have any.

        Raises:
            ValueError: a leaf is not a spec, of a dtype that cannot be stored, or of a name that gives it
                the column of another.
        """
        self._spec = spec
        self._single = frozenset(single)
        self._bounded = frozenset(bounded)
        self._columns: dict[str, base.ColumnSpec] = {}
        self._leaves: list[_Leaf] = []
        self._plan = self._make_plan(spec, name, (name,) if name else ())
        # A named tuple of leaves is put together in a tenth of the time that `tree` takes.
        self._is_flat = hasattr(spec, "_fields") and all(
            isinstance(child, specs.Array) or child == () for child in spec
        )
        self._floating = [key for key, column in self._columns.items() if column.dtype.kind == "f"]

    @property
    def columns(self) -> dict[str, base.ColumnSpec]:
        """The columns that rows are packed into; none for an empty nest."""
        return dict(self._columns)

    def pack(self, nest: types.NestedArray) -> Rows:
        """Packs one step into fresh arrays, one row for each column.

        Raises:
            ValueError: a field is missing, extra, not an array, of another dtype or shape, out of bounds
                or, as it is stored, not finite or beyond `constraints.LARGEST` in float32; the message names
                it and says what was expected.
        """
        leaves: list[Any] = []
        _collect(self._plan, nest, leaves)
        rows = {key: np.empty(column.shape, column.dtype) for key, column in self._columns.items()}
        for leaf, value in zip(self._leaves, leaves, strict=True):
            _, column, place, shape, dtype, is_matrix, _, overflows, bounds = leaf
            if (
                not isinstance(value, _ARRAYS)
                # A native dtype of numpy's is one object; unequal where the byte order differs.
                or (value.dtype is not dtype and value.dtype != dtype)
                or value.shape != shape
            ):
                raise ValueError(_describe_mismatch(leaf, value))
            if bounds is not None:
                low, high = bounds
                # As Python's number: numpy takes ten times as long to compare one of its own.
                number: Any = value if shape else value.item()
                is_outside = (number < low) | (number > high)
                if is_outside.any() if shape else is_outside:
                    raise ValueError(_describe_out_of_bounds(leaf, value))
            if overflows:
                with np.errstate(over="ignore"):  # to infinity, which is refused below
                    value = value.astype(np.float32)
            rows[column][place] = value.ravel() if is_matrix else value
        for key in self._floating:
            row = rows[key].ravel()
            if not is_storable(row):
                raise ValueError(_describe_immoderate(self._leaves, leaves))
        return rows

    def unpack(self, columns: Mapping[str, torch.Tensor], *, contiguous: bool = False) -> types.NestedTensor:
        """Returns the nest of leaves [..., *leaf shape] out of columns [..., *row shape].

        The leaves are views. Slice them, then make them contiguous: on a strided input a network's
        first layer takes three times as long. With `contiguous` they are.
        """
        leaves = []
        for leaf in self._leaves:
            column = columns[leaf.column]
            view = column if leaf.is_image else column[..., leaf.place]
            view = view.unflatten(-1, leaf.shape) if leaf.is_matrix else view
            leaves.append(view.contiguous() if contiguous else view)
        spec: Any = self._spec
        if self._is_flat:
            left = iter(leaves)
            return type(spec)(*(next(left) if isinstance(child, specs.Array) else () for child in spec))
        return tree.unflatten_as(spec, leaves)

    def _make_plan(self, spec: types.NestedSpec, name: str, path: tuple[str, ...]) -> "_Leaf | _Branch":
        if isinstance(spec, specs.Array):
            leaf = self._make_leaf(spec, name, path)
            self._leaves.append(leaf)
            return leaf
        if isinstance(spec, Mapping):
            fields = tuple(sorted(spec))
            children = [spec[field] for field in fields]
        elif isinstance(spec, tuple | list):
            fields = getattr(spec, "_fields", tuple(range(len(spec))))
            children = list(spec)
        else:
            raise ValueError(
                f"The spec of `{name}` must be a nest (tuples, lists, dicts) of dm_env specs, got {spec!r}."
            )
        plans = []
        for field, child in zip(fields, children, strict=True):
            child_name = f"{name}.{field}" if hasattr(spec, "_fields") else f"{name}[{field!r}]"
            plans.append(self._make_plan(child, child_name if name else str(field), (*path, str(field))))
        return _Branch(name, isinstance(spec, Mapping), hasattr(spec, "_fields"), fields, tuple(plans), set())

    def _make_leaf(self, spec: specs.Array, name: str, path: tuple[str, ...]) -> "_Leaf":
        dtype = np.dtype(spec.dtype)
        if dtype.kind not in "biuf" or dtype.itemsize > 8 or not dtype.isnative:
            raise ValueError(
                f"`{name}` must have a boolean, integer or floating dtype of at most 64 bits in native byte "
                f"order to be stored, got {specs.describe(spec)}. Convert or drop it in a wrapper of the "
                "environment."
            )
        stored = np.dtype(np.float32) if path and path[0] in self._single else dtype
        overflows = stored != dtype and dtype == np.float64
        is_image = len(spec.shape) >= _IMAGE_NDIM
        column = "/".join(path) if is_image else stored.name
        for other in self._leaves:
            if other.column == column and (is_image or other.is_image):
                raise ValueError(
                    f"`{other.name}` and `{name}` must not share a column of replay, got '{column}' "
                    "for both. Rename one of them in a wrapper of the environment."
                )
        place: int | slice = slice(None)
        if is_image:
            self._columns[column] = base.ColumnSpec(spec.shape, stored)
        else:
            start = self._columns[column].shape[0] if column in self._columns else 0
            stop = start + int(np.prod(spec.shape))
            self._columns[column] = base.ColumnSpec((stop,), stored)
            place = slice(start, stop) if spec.shape else start
        bounds = None
        if path and path[0] in self._bounded and isinstance(spec, specs.BoundedArray):
            bounds = specs.bounds(spec) if spec.shape else (float(spec.minimum), float(spec.maximum))
        is_matrix = len(spec.shape) == 2
        return _Leaf(name, column, place, spec.shape, dtype, is_matrix, is_image, overflows, bounds)


def join(parts: Sequence[Rows], columns: Iterable[str]) -> Rows:
    """Joins the packed parts of a step: in each of the columns their rows, one after the other."""
    rows = {}
    for name in columns:
        found = [part[name] for part in parts if name in part]
        rows[name] = found[0] if len(found) == 1 else np.concatenate(found)
    return rows


class _Leaf(NamedTuple):
    """What a leaf must be, and where it lies: `rows[column][place]`."""

    name: str  # as in messages: `observation['position']`
    column: str
    place: int | slice
    shape: tuple[int, ...]
    dtype: np.dtype
    is_matrix: bool
    is_image: bool
    overflows: bool  # stored in a narrower dtype that does not hold all of its numbers
    bounds: tuple[Any, Any] | None  # to be checked


class _Branch(NamedTuple):
    """What an inner node must be, its fields in the order in which `tree` flattens them."""

    name: str
    is_mapping: bool
    is_named_tuple: bool
    fields: tuple[Any, ...]
    children: tuple["_Leaf | _Branch", ...]
    fitting: set[type]  # named tuples that were found to have just these fields


def _collect(plan: _Leaf | _Branch, nest: Any, leaves: list[Any]) -> None:
    """Appends the leaves of `nest` once its structure is found to be as planned."""
    if isinstance(plan, _Leaf):
        leaves.append(nest)
        return
    if plan.is_mapping:
        if (
            not isinstance(nest, Mapping)
            or len(nest) != len(plan.fields)
            or not all(field in nest for field in plan.fields)
        ):
            raise ValueError(_describe_structure(plan, nest))
        values: Sequence[Any] = [nest[field] for field in plan.fields]
    else:
        if type(nest) not in plan.fitting:
            fields = getattr(nest, "_fields", plan.fields)
            if (
                not isinstance(nest, (tuple, list))
                or len(nest) != len(plan.fields)
                or (plan.is_named_tuple and fields != plan.fields)
            ):
                raise ValueError(_describe_structure(plan, nest))
            if hasattr(nest, "_fields"):
                plan.fitting.add(type(nest))
        values = nest
    for value, child in zip(values, plan.children, strict=True):
        if type(child) is _Leaf:
            leaves.append(value)
        else:
            _collect(child, value, leaves)


def _describe_structure(plan: _Branch, nest: Any) -> str:
    is_named = plan.is_mapping or plan.is_named_tuple
    expected = f"the fields {list(plan.fields)}" if is_named else f"{len(plan.fields)} elements"
    if isinstance(nest, Mapping):
        found = f"the fields {sorted(nest, key=str)}"
    elif isinstance(nest, tuple | list):
        found = f"the fields {list(nest._fields)}" if hasattr(nest, "_fields") else f"{len(nest)} elements"
    else:
        found = _describe_value(nest)
    return f"`{plan.name}` must have {expected}, got {found}. Make it agree with its spec."


def _describe_mismatch(leaf: _Leaf, value: Any) -> str:
    if not isinstance(value, (np.ndarray, np.generic)):
        way_out = "Make it a numpy array or scalar, as SinglePrecisionWrapper does for an environment."
    elif value.dtype == leaf.dtype:
        way_out = "Make it agree with its spec."
    elif not value.dtype.isnative:
        way_out = "Convert it to native byte order."
    elif (value.dtype.name, leaf.dtype.name) in (("float64", "float32"), ("int64", "int32")):
        way_out = "Cast it, or wrap the environment in SinglePrecisionWrapper."
    else:
        way_out = "Cast it, or correct its spec."
    expected = f"{leaf.dtype} of shape {leaf.shape}"
    return f"`{leaf.name}` must be {expected}, got {_describe_value(value)}. {way_out}"


def _describe_value(value: Any) -> str:
    if isinstance(value, (np.ndarray, np.generic)):
        byte_order = "" if value.dtype.isnative else " (foreign byte order)"
        return f"{value.dtype.name}{byte_order} of shape {value.shape}"
    if isinstance(value, bool | int | float | str | None):
        return repr(value)
    return f"a {type(value).__name__}"


def _is_storable(array: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which numbers are taken: in double precision all that are finite, for they are no learner's yet."""
    return np.isfinite(array) if array.dtype == np.float64 else specs.is_moderate(array)


def _describe_immoderate(leaves: Sequence[_Leaf], values: Sequence[Any]) -> str:
    for leaf, value in zip(leaves, values, strict=True):
        with np.errstate(over="ignore"):
            stored = value.astype(np.float32) if leaf.overflows else value
        if stored.dtype.kind == "f" and not _is_storable(stored).all():
            break
    found = _describe_first(value, ~_is_storable(stored))
    if np.isfinite(value).all():
        what, way_out = (
            f"within +-{constraints.LARGEST:g}",
            "Clip it or scale it down in a wrapper of the environment.",
        )
    else:
        what, way_out = "finite", "Look for a simulation or a policy that has diverged."
    return f"`{leaf.name}` must be {what}, got {found}. {way_out}"


def _describe_out_of_bounds(leaf: _Leaf, value: Any) -> str:
    assert leaf.bounds is not None
    low, high = (np.broadcast_to(bound, leaf.shape) for bound in leaf.bounds)
    is_wrong = (value < low) | (value > high)
    place = tuple(np.argwhere(is_wrong)[0])
    return (
        f"`{leaf.name}` must be in [{low[place]:g}, {high[place]:g}], the bounds of its spec, got "
        f"{_describe_first(value, is_wrong)}. Correct the environment, or its "
        f"`{leaf.name.partition('[')[0]}_spec`."
    )


def _describe_first(value: Any, is_wrong: Any) -> str:
    """The first element of an array, or the scalar, that is wrong, and where it stands."""
    index = tuple(int(i) for i in np.argwhere(is_wrong)[0])
    return f"{value[index]} at index {index}" if index else str(value[()])
