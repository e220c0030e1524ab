"""Packs the nest of one step into a few flat rows, since stores handle one wide column much faster than many.

{"position": float32 [3], "step": int32 [], "pixels": uint8 [64, 64, 3], "velocity": float32 [2]}

column "float32"  [5]           | position . . | velocity . |
column "int32"    [1]           | step |
column "pixels"   [64, 64, 3]   the image, unchanged
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
import tree

from minerva_acme import constraints, specs, types
from minerva_acme.replay import base

_Item = TypeVar("_Item")

Rows: TypeAlias = dict[str, np.ndarray]

_IMAGE_NDIM = 3


def is_storable(row: np.ndarray) -> bool:
    """Returns whether all numbers of a floating-point row are finite, and at most `LARGEST` in float32."""
    # The square also reveals nan and large numbers, and is four times faster.
    if specs.square(row) <= constraints.LARGEST:
        return True
    is_fine = np.isfinite(row) if row.dtype == np.float64 else specs.is_moderate(row)
    return bool(is_fine.all())


class RowPacker:
    """Packs nests that conform to a spec into one row per dtype, and unpacks batches of such rows.

    Leaves with three axes or more (images) get their own column, named after their path. Leaves keep their
    dtypes, except those that are to be stored in single precision. Nests that do not conform are rejected,
    so that stored data can be trusted. Bounds are checked only if requested.
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
            spec: The nest of `dm_env` specs.
            name: The name of the nest, in errors and column names. It may be omitted if the nest names its
                own fields.
            single: The outermost fields that are stored as float32, whatever their dtype.
            bounded: The outermost fields that must be within the bounds of their specs, if these have any.

        Raises:
            ValueError: A leaf is not a spec, has a dtype that cannot be stored, or has a name whose column
                is already used by another leaf.
        """
        self._spec = spec
        # The size of numbers is checked in the finished rows, as they are stored.
        self._checker = specs.Checker(spec, name, exact=True, bounded=bounded, largest=None)
        self._columns: dict[str, base.ColumnSpec] = {}
        self._leaves: list[_Leaf] = []
        for leaf in self._checker.leaves:
            self._leaves.append(self._place(leaf, frozenset(single)))
        self._is_usual = _is_usual(spec)
        self._floating = [key for key, column in self._columns.items() if column.dtype.kind == "f"]

    @property
    def columns(self) -> dict[str, base.ColumnSpec]:
        """The columns that rows are packed into; empty for an empty nest."""
        return dict(self._columns)

    def places(self, field: str) -> dict[str, slice]:
        """Returns the slice of an outermost field in each of its columns; empty for an empty field."""
        places: dict[str, slice] = {}
        for leaf in self._leaves:
            if leaf.field == field:
                place = leaf.place if isinstance(leaf.place, slice) else slice(leaf.place, leaf.place + 1)
                first = places.get(leaf.column, place)
                places[leaf.column] = slice(first.start, place.stop)
        return places

    def pack(self, nest: types.NestedArray) -> Rows:
        """Packs one step into new arrays, one row for each column.

        Raises:
            ValueError: A field is missing, extra, not an array, of a wrong dtype or shape, out of bounds or,
                as stored, not finite or in float32 beyond `constraints.LARGEST`. The message names the field
                and says what was expected.
        """
        leaves = self._checker.fits(nest)
        if leaves is None:
            leaves = self._checker.explain(nest)
        rows = {}
        for key, (shape, dtype) in self._columns.items():
            rows[key] = np.empty(shape, dtype)
        for leaf, value in zip(self._leaves, leaves, strict=True):
            _, _, column, place, _, is_matrix, _, overflows = leaf
            if overflows:
                with np.errstate(over="ignore"):  # to infinity, which is rejected below
                    value = value.astype(np.float32)
            rows[column][place] = value.ravel() if is_matrix else value
        for key in self._floating:
            if not is_storable(rows[key].ravel()):
                for leaf, value in zip(self._leaves, leaves, strict=True):
                    if leaf.column == key:
                        is_wide = rows[key].dtype == np.float64  # which no learner uses yet
                        specs.check_size(leaf.name, value, np.inf if is_wide else constraints.LARGEST)
        return rows

    def unpack(
        self,
        columns: Mapping[str, torch.Tensor],
        *,
        contiguous: bool = False,
        left_out: Mapping[str, int] = MappingProxyType({}),
    ) -> types.NestedTensor:
        """Returns the nest of leaves [..., *leaf shape] from columns [..., *row shape].

        By default the leaves are views. Slice them, then make them contiguous: on a strided input a
        network's first layer takes three times as long.

        Args:
            columns: The columns, with one leading axis or more.
            contiguous: Whether to return contiguous tensors.
            left_out: The number of rows to omit at the start of the second axis, by outermost field.
        """
        leaves = []
        for leaf in self._leaves:
            column = columns[leaf.column]
            if leaf.field in left_out:
                column = column[:, left_out[leaf.field] :]
            view = column if leaf.is_image else column[..., leaf.place]
            view = view.unflatten(-1, leaf.shape) if leaf.is_matrix else view
            leaves.append(view.contiguous() if contiguous else view)
        return (
            _assemble(self._spec, iter(leaves)) if self._is_usual else tree.unflatten_as(self._spec, leaves)
        )

    def _place(self, planned: specs.Leaf, single: Collection[str]) -> "_Leaf":
        """Assigns a leaf its place in a column."""
        name, path, spec, dtype = planned[:4]
        if dtype.kind not in "biuf" or dtype.itemsize > 8 or not dtype.isnative:
            raise ValueError(
                f"`{name}` must have a boolean, integer or floating dtype of at most 64 bits in native byte "
                f"order to be stored, got {specs.describe(spec)}. Convert or drop it in a wrapper of the "
                "environment."
            )
        stored = np.dtype(np.float32) if path and path[0] in single else dtype
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
        is_matrix = len(spec.shape) == 2
        field = path[0] if path else name
        return _Leaf(name, field, column, place, spec.shape, is_matrix, is_image, overflows)


class Step(NamedTuple):
    """An action and its results, with field names as in messages."""

    observation: types.NestedArray  # at the end of the step
    action: types.NestedArray
    reward: types.NestedArray
    discount: types.NestedArray
    extras: types.NestedArray


def step_packer(environment_spec: specs.EnvironmentSpec, extras_spec: types.NestedSpec) -> RowPacker:
    """Makes the packer of a `Step`. The discount must be within its bounds.

    Args:
        environment_spec: The specs of the environment as the actor sees it.
        extras_spec: The spec of the extras that the policy records with each action.

    Raises:
        ValueError: A field cannot be stored.
    """
    step = Step(
        observation=environment_spec.observations,
        action=environment_spec.actions,
        reward=environment_spec.rewards,
        discount=environment_spec.discounts,
        extras=extras_spec,
    )
    return RowPacker(step, single=("reward", "discount"), bounded=("discount",))


def join(parts: Sequence[Rows], columns: Iterable[str]) -> Rows:
    """Joins the packed parts of a step, by concatenating their rows in each of the columns."""
    rows = {}
    for name in columns:
        found = []
        for part in parts:
            if name in part:
                found.append(part[name])
        rows[name] = found[0] if len(found) == 1 else np.concatenate(found)
    return rows


def take(rows: Rows, places: Mapping[str, slice]) -> Rows:
    """Returns a part of a packed step, without a copy.

    Args:
        rows: The packed step.
        places: The places of the part; see `RowPacker.places`.
    """
    part = {}
    for name, place in places.items():
        part[name] = rows[name][place]
    return part


def only_item(
    unpack: Callable[[Mapping[str, torch.Tensor]], _Item], fields: Mapping[str, np.ndarray], axis: int = 0
) -> _Item:
    """Unpacks a batch of one item and returns the item, as arrays."""
    batch = unpack({name: torch.from_numpy(rows[None]) for name, rows in fields.items()})
    item: _Item = tree.map_structure(lambda leaf: leaf.select(axis, 0).numpy(), batch)
    return item


def _is_usual(spec: types.NestedSpec) -> bool:
    """Returns whether `_assemble` can build such a nest."""
    if isinstance(spec, specs.Array):
        return True
    is_known = type(spec) in (dict, list, tuple) or hasattr(spec, "_fields")
    return is_known and all(map(_is_usual, spec.values() if isinstance(spec, dict) else spec))


def _assemble(spec: Any, leaves: Iterator[torch.Tensor]) -> types.NestedTensor:
    """Builds a nest as `tree.unflatten_as` does, ten times faster."""
    if isinstance(spec, specs.Array):
        return next(leaves)
    if isinstance(spec, dict):
        nest: dict[Any, Any] = dict.fromkeys(spec)
        for key in sorted(spec):
            nest[key] = _assemble(spec[key], leaves)
        return nest
    parts = []
    for child in spec:
        parts.append(_assemble(child, leaves))
    return type(spec)(*parts) if hasattr(spec, "_fields") else type(spec)(parts)


class _Leaf(NamedTuple):
    """The place of a leaf: `rows[column][place]`."""

    name: str  # as in messages: `observation['position']`
    field: str  # the outermost field that contains it
    column: str
    place: int | slice
    shape: tuple[int, ...]
    is_matrix: bool
    is_image: bool
    overflows: bool  # stored in a narrower dtype that cannot represent all of its numbers
