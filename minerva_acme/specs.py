"""Specs of environments, as in `dm_env`, and checks against them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import dm_env
import numpy as np
import tree
from dm_env import specs

from minerva_acme import constraints, types

Array = specs.Array
BoundedArray = specs.BoundedArray
DiscreteArray = specs.DiscreteArray
StringArray = specs.StringArray

_ARRAYS = (np.ndarray, np.generic)
_PLAIN = (specs.Array.validate, specs.BoundedArray.validate)  # everything that these check is checked here
_ROUNDING = 1e-5  # relative to the size of the bounds
_AGREE = "Make it agree with its spec."
_NAMED_RANGES = 4  # in a description, of bounds that are not the same everywhere
_WARNS_OF_DOT = np.lib.NumpyVersion(np.__version__) >= "2.0.0"  # when a product overflows


class EnvironmentSpec(NamedTuple):
    """The four specs of an environment; each may be a nest. By default, a reward is one float32."""

    observations: types.NestedSpec
    actions: types.NestedSpec
    rewards: types.NestedSpec = Array((), np.float32, name="reward")
    discounts: types.NestedSpec = BoundedArray((), np.float32, 0.0, 1.0, name="discount")


class SpecError(ValueError):
    """Raised when an environment, or an agent in it, violates a spec."""


class SpecMethods:
    """The four spec methods of an environment, for a class that stores its specs in `_specs`."""

    _specs: EnvironmentSpec

    def observation_spec(self) -> types.NestedSpec:
        return self._specs.observations

    def action_spec(self) -> types.NestedSpec:
        return self._specs.actions

    def reward_spec(self) -> types.NestedSpec:
        return self._specs.rewards

    def discount_spec(self) -> types.NestedSpec:
        return self._specs.discounts


def is_number(spec: types.NestedSpec) -> bool:
    """Returns whether a spec is of one number."""
    return isinstance(spec, Array) and spec.shape == ()


def are_numbers(reward_spec: types.NestedSpec) -> bool:
    """Returns whether a reward is one number, or a dict of numbers."""
    parts = reward_spec.values() if isinstance(reward_spec, Mapping) else [reward_spec]
    return all(map(is_number, parts))


def is_hybrid(spec: types.NestedSpec) -> bool:
    """Returns whether actions are hybrid: a dict of two vectors with bounds, floats and integers.

    Their names are `continuous` and `discrete`. `wrappers.FlatActionWrapper` turns other nests into this one.
    """
    if not isinstance(spec, Mapping) or spec.keys() != {"continuous", "discrete"}:
        return False
    kinds = (spec["continuous"], "f"), (spec["discrete"], "iu")
    return all(
        isinstance(part, BoundedArray) and part.dtype.kind in kind and len(part.shape) == 1
        for part, kind in kinds
    )


def without(nest: Any, names: Collection[str]) -> Any:
    """Returns a dict of specs, arrays or tensors without the entries with these names.

    Anything other than a dict is returned as it is, and so is a dict if there are no names.
    """
    if not names or not isinstance(nest, Mapping):
        return nest
    return {name: part for name, part in nest.items() if name not in names}


def make_environment_spec(environment: dm_env.Environment | SpecMethods) -> EnvironmentSpec:
    """Reads the four specs of an environment, or of one environment of a vector."""
    return EnvironmentSpec(
        observations=environment.observation_spec(),
        actions=environment.action_spec(),
        rewards=environment.reward_spec(),
        discounts=environment.discount_spec(),
    )


def bounds(spec: BoundedArray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the smallest and largest values, each with the spec's shape and dtype."""
    low, high = (np.broadcast_to(bound, spec.shape).copy() for bound in (spec.minimum, spec.maximum))
    return low, high


def limits(spec: specs.Array) -> tuple[np.ndarray, np.ndarray]:
    """Returns the bounds of a spec, or its dtype's limits, as arrays of the spec's shape and dtype."""
    if isinstance(spec, BoundedArray):
        return bounds(spec)
    dtype = np.dtype(spec.dtype)
    low, high = (False, True) if dtype.kind == "b" else (-np.inf, np.inf)
    if dtype.kind in "iu":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return np.full(spec.shape, low, dtype), np.full(spec.shape, high, dtype)


def form(spec: specs.Array) -> tuple[tuple[int, ...], str, int]:
    """Returns what networks depend on: shape, kind of dtype, and the number of discrete values or 0."""
    num_values = spec.num_values if isinstance(spec, DiscreteArray) else 0
    return tuple(spec.shape), np.dtype(spec.dtype).kind, int(num_values)


def are_alike(ours: specs.Array, theirs: specs.Array) -> bool:
    """Returns whether two specs have the same `form`, whether or not their integers have a sign."""
    forms = [(shape, kind.replace("u", "i"), num) for shape, kind, num in map(form, (ours, theirs))]
    return forms[0] == forms[1]


def agree(ours: specs.Array, theirs: specs.Array) -> bool:
    """Returns whether two specs are alike and have the same bounds, up to rounding."""
    if not are_alike(ours, theirs):
        return False
    pairs = zip(_open_limits(ours), _open_limits(theirs), strict=True)
    return all(np.allclose(mine, other, rtol=1e-6, atol=0.0) for mine, other in pairs)


def _open_limits(spec: specs.Array) -> list[np.ndarray]:
    """Returns the limits of a spec as floats, infinite where its dtype has no larger ones."""
    low, high = (bound.astype(np.float64) for bound in limits(spec))
    if np.dtype(spec.dtype).kind not in "iu":
        return [low, high]
    ends = np.iinfo(spec.dtype)
    return [np.where(low <= ends.min, -np.inf, low), np.where(high >= ends.max, np.inf, high)]


def is_bounded(spec: Any) -> bool:
    """Returns whether a spec has finite bounds on both sides."""
    return isinstance(spec, BoundedArray) and bool(np.isfinite(bounds(spec)).all())


def describe(spec: Any) -> str:
    """Describes a spec briefly, for error messages: `BoundedArray(6,) float32 in [-1, 1]`.

    Of bounds that are not the same everywhere, the first few are named.
    """
    if isinstance(spec, specs.DiscreteArray):
        return f"DiscreteArray with {spec.num_values} values"
    if isinstance(spec, specs.BoundedArray) and 0 not in spec.shape:
        ranges = np.stack([bound.ravel() for bound in bounds(spec)], axis=-1)
        named = ranges[: 1 if (ranges == ranges[0]).all() else _NAMED_RANGES]
        text = ", ".join(f"[{low:g}, {high:g}]" for low, high in named)
        return f"BoundedArray{spec.shape} {spec.dtype} in {text}{', ...' * (1 < len(named) < len(ranges))}"
    if isinstance(spec, specs.Array):
        return f"{type(spec).__name__}{spec.shape} {spec.dtype}"
    return repr(spec)


def describe_apart(spec: Any, other: Any) -> tuple[str, str]:
    """Describes two specs that differ, so that their texts differ, too."""
    first, second = describe(spec), describe(other)
    if first == second and isinstance(spec, specs.BoundedArray):
        mine, theirs = (np.stack(bounds(each), axis=-1) for each in (spec, other))
        for place in map(tuple, np.argwhere((mine != theirs).any(axis=-1))[:1].tolist()):
            first += f", {mine[place].tolist()} at index {place}"
            second += f", {theirs[place].tolist()} at index {place}"
    return first, second


def check_conforms(name: str, value: types.NestedArray, spec: types.NestedSpec) -> None:
    """Checks a nest of arrays or numbers against its spec; floats must also be `is_moderate`.

    Raises:
        SpecError: The nest does not conform; the message says where, and what was expected and found.
    """
    Checker(spec, name).explain(value)


def check_critic_observations(observation_spec: types.NestedSpec, names: Collection[str]) -> None:
    """Checks that names are of entries of an observation, for the critic alone, and leave others.

    Raises:
        ValueError: The observation is no dict, or has no such entries, or no others.
    """
    if not isinstance(observation_spec, Mapping):
        raise ValueError(
            "`critic_observations` must be empty unless observations are a dict, whose entries it names, got "
            f"{', '.join(names)} for {describe(observation_spec)}. Give the parts of the observation names "
            "in the environment."
        )
    unknown = sorted({*names} - {*observation_spec})
    if unknown or not names or not {*observation_spec} - {*names}:
        raise ValueError(
            f"`critic_observations` must name some of {', '.join(sorted(observation_spec))}, and leave "
            f"others to the policy, got {', '.join(unknown or names) or 'none'}."
        )


def is_moderate(value: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Returns which numbers of a floating-point array are finite and within `constraints.LARGEST`."""
    return np.asarray(np.abs(value) <= np.float64(constraints.LARGEST))


def check_timestep(timestep: dm_env.TimeStep, environment_spec: EnvironmentSpec) -> None:
    """Checks a timestep against the specs.

    Raises:
        SpecError: A leaf does not conform, or the first timestep has a reward or a discount.
    """
    check_conforms("observation", timestep.observation, environment_spec.observations)
    if timestep.first():
        check_first(timestep)
    else:
        check_conforms("reward", timestep.reward, environment_spec.rewards)
        check_conforms("discount", timestep.discount, environment_spec.discounts)


def check_first(timestep: dm_env.TimeStep) -> None:
    """Checks that a first timestep has no reward and no discount.

    Raises:
        SpecError: The timestep has a reward or a discount.
    """
    for name, value in (("reward", timestep.reward), ("discount", timestep.discount)):
        if value is not None:
            raise SpecError(f"`{name}` of a FIRST timestep must be None, got {value!r}.")


def leaf_name(name: str, path: tuple[Any, ...]) -> str:
    """Returns the name of a leaf for messages: `observation['arm'][0]`."""
    return name + "".join(f"[{key!r}]" for key in path)


def square(array: np.ndarray) -> Any:
    """Returns the sum of a flat array's squares, or infinity if it overflows the dtype."""
    if _WARNS_OF_DOT:
        with np.errstate(over="ignore"):  # takes two microseconds with older versions, which do not need it
            return array.dot(array)
    return array.dot(array)


def check_size(name: str, value: Any, largest: float, *, axes: Sequence[str] = (), way_out: str = "") -> None:
    """Checks that the numbers of a floating-point array are finite and within a limit.

    Args:
        name: The name of the array, for the message.
        value: The array, or a number.
        largest: The largest magnitude.
        axes: What an index of each leading axis is of, such as "step"; other axes have no name.
        way_out: The end of the message, or "" for one to authors of environments.

    Raises:
        SpecError: A number is not; the message gives the first such number.
    """
    is_wrong = ~(np.isfinite(value) & (np.abs(value) <= np.float64(largest)))
    if not is_wrong.any():
        return
    what, default = "finite", "Look for a simulation or a policy that has diverged."
    if np.isfinite(value).all():
        what, default = f"within ±{largest:g}", "Clip it or scale it down in a wrapper of the environment."
    raise SpecError(
        f"`{name}` must be {what}, got {_describe_first(value, is_wrong, axes)}. {way_out or default}"
    )


def check_bounds(
    name: str, value: np.ndarray, spec: BoundedArray, *, axes: Sequence[str] = (), way_out: str = ""
) -> None:
    """Checks that numbers are within the bounds of their spec, up to rounding if they are floats.

    Args:
        name: The name of the array, for the message.
        value: The array, [..., *spec.shape].
        spec: The spec.
        axes: As in `check_size`.
        way_out: The end of the message.

    Raises:
        SpecError: A number is not; the message gives the first such number.
    """
    low, high = ends = bounds(spec)
    if value.dtype.kind == "f":  # float32, scaled twice
        wide = np.asarray(ends, np.float64)
        slack = _ROUNDING * np.abs(np.where(np.isfinite(wide), wide, 0.0)).max(axis=0)
        low, high = wide[0] - slack, wide[1] + slack
    if (is_wrong := np.asarray((value < low) | (value > high))).any():
        raise _out_of_bounds(name, value, is_wrong, ends, axes, way_out)


def as_dtype(array: np.ndarray, dtype: np.dtype, *, across_kinds: bool) -> np.ndarray:
    """Returns an array in another dtype if that loses nothing but digits of floats, and else as it is.

    Args:
        array: The array.
        dtype: The other dtype.
        across_kinds: Whether whole numbers may become floats, and booleans numbers.
    """
    kinds = [{"u": "i"}.get(kind, kind) for kind in (array.dtype.kind, dtype.kind)]
    if array.dtype == dtype or not {*kinds} <= {*"bif"}:
        return array
    if kinds[0] != kinds[1] and (not across_kinds or kinds[0] == "f"):
        return array
    with np.errstate(over="ignore"):  # to infinity, which is refused
        cast = array.astype(dtype)
    return cast if kinds[0] == "f" or (cast == array).all() else array


class Leaf(NamedTuple):
    """A leaf of a spec, and the conditions under which a value conforms without further checks."""

    name: str  # as in messages: `observation['position']`
    path: tuple[str, ...]
    spec: specs.Array
    dtype: np.dtype
    shape: tuple[int, ...]
    is_plain: bool  # numbers whose spec has no checks of its own
    scalars: tuple[Any, ...]  # the types that a number may have, within `low` and `high`
    low: float
    high: float
    bounds: tuple[np.ndarray, np.ndarray] | None
    largest: float | None


class Branch(NamedTuple):
    """An inner node of a spec, with its fields in the order in which `tree` flattens them."""

    name: str
    kind: Any  # the type of a value, or several types
    is_named_tuple: bool
    fields: tuple[Any, ...]
    children: tuple["Leaf | Branch", ...]
    fitting: set[type]  # the types of named tuples that were found to have exactly these fields


class Checker:
    """Checks nests against a spec. The spec is processed once, so that a check takes a microsecond or two.

    A nest conforms if it has the structure of the spec, and each leaf is an array or a number with the
    dtype and shape of its spec, within the spec's bounds. Floats must also be `is_moderate`.
    """

    def __init__(
        self,
        spec: types.NestedSpec,
        name: str = "",
        *,
        exact: bool = False,
        any_number: Collection[str] = (),
        bounded: Collection[str] | None = None,
        largest: float | None = constraints.LARGEST,
        converts: Literal["", "digits", "numbers"] = "",
        device: Any = None,
        axes: Sequence[str] = (),
        way_out: str = "",
    ) -> None:
        """Plans the checks.

        Args:
            spec: The nest of specs.
            name: The name of the nest in errors. It may be omitted if the nest names its own fields; any
                tuple with the right number of fields is then accepted.
            exact: Whether each leaf must be a numpy array or scalar; any tuple with the right fields is then
                accepted. Otherwise Python's numbers and lists are treated as `np.asarray` converts them.
            any_number: The outermost fields whose numbers may have any dtype that can be cast to their spec.
            bounded: The outermost fields that must be within the bounds of their specs; None for all.
            largest: The magnitude above which `fits` does not accept floats; None for no limit.
            converts: What `explain` converts, for values from elsewhere: nothing; 64 bits to 32 and the like
                ("digits"); or whole numbers to floats, too ("numbers"), see `as_dtype`. Any tuple or list is
                then accepted, floats may leave their bounds by rounding, discrete numbers are always
                bounded, and text is not looked at.
            device: The torch device of the leaves, which are tensors whose numbers are not read; or None.
            axes: What an index of each leading axis is of, in messages, such as "step".
            way_out: The end of all messages, or "" for ones to authors of environments.

        Raises:
            ValueError: A leaf is not a spec.
        """
        self._spec = spec
        self._converts = converts
        self._device = device
        self._axes = tuple(axes)
        self._way_out = way_out
        self._exact = exact
        self._any_number = frozenset(any_number)
        self._bounded = bounded
        self._largest = largest
        self._leaves: list[Leaf] = []
        self._plan = self._make_plan(spec, name, (name,) if name else ())

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves of the spec, in the order in which `tree` flattens it."""
        return tuple(self._leaves)

    def fits(self, nest: types.NestedArray) -> list[Any] | None:
        """Returns the leaves if the nest passes a fast check, else None; then ask `explain`."""
        leaves: list[Any] = []
        if _collect(self._plan, nest, leaves) is not None:
            return None
        for leaf, value in zip(self._leaves, leaves, strict=True):
            _, _, _, dtype, shape, is_plain, scalars, low, high, bounds, largest = leaf
            if isinstance(value, scalars):
                if not low <= float(value) <= high:
                    return None
                continue
            if (
                not is_plain
                or not isinstance(value, _ARRAYS)
                # Numpy has one object per native dtype; a different byte order makes them unequal.
                or (value.dtype is not dtype and value.dtype != dtype)
                or value.shape != shape
            ):
                return None
            # Four times faster than `isfinite`; false for nan, too.
            if largest is not None and not square(value.ravel()) <= largest * largest:
                return None
            # Three times faster than `any`.
            if bounds is not None and np.count_nonzero((value < bounds[0]) | (value > bounds[1])):
                return None
        return leaves

    def flatten(self, nest: types.NestedArray) -> list[Any]:
        """Returns the leaves of a nest of the spec's structure, unchecked.

        Raises:
            SpecError: The structures differ; the message says where.
        """
        leaves: list[Any] = []
        misfit = _collect(self._plan, nest, leaves)
        if misfit is not None:
            raise SpecError(f"{_describe_structure(*misfit)} {self._way_out or _AGREE}")
        return leaves

    def resembles(self, nest: types.NestedArray, num_axes: int = 0) -> bool:
        """Returns whether a nest has the structure and the shapes of the spec, behind leading axes."""
        leaves: list[Any] = []
        try:
            return _collect(self._plan, nest, leaves) is None and all(
                not isinstance(value, Mapping) and np.shape(value)[num_axes:] == leaf.shape
                for leaf, value in zip(self._leaves, leaves, strict=True)
            )
        except ValueError:  # lists of different lengths
            return False

    def conform(self, nest: types.NestedArray, sizes: Sequence[int | None] = ()) -> types.NestedArray:
        """Returns a nest converted to the spec's structure, dtypes and shapes; see `explain`."""
        leaves = self.explain(nest, sizes=sizes)
        return leaves[0] if isinstance(self._plan, Leaf) else tree.unflatten_as(self._spec, leaves)

    def explain(
        self,
        nest: types.NestedArray,
        *,
        unbounded: Collection[str] = (),
        sizes: Sequence[int | None] = (),
    ) -> list[Any]:
        """Returns the leaves of a nest that conforms, or raises an error that says why it does not.

        Args:
            nest: The nest.
            unbounded: The outermost fields that may be out of bounds in this call.
            sizes: The sizes of the leading axes of each leaf. None stands for that of the first leaf, at
                least 1.

        Returns:
            The leaves, converted if the checker converts.

        Raises:
            SpecError: The nest does not conform; the message says where, and what was expected and found.
        """
        leaves = self.flatten(nest)
        lead, axes, way_out = tuple(sizes), self._axes[: len(sizes)], self._way_out
        for place, (leaf, value) in enumerate(zip(self._leaves, leaves, strict=True)):
            if self._device is not None:
                self._check_tensor(leaf, value, lead)
                continue
            array = value if self._exact else self._read(leaf, value)
            if self._converts:
                leaves[place] = array
            elif not leaf.is_plain:
                _validate(leaf, value)
            if leaf.dtype.kind not in "biuf":  # text
                continue
            if None in lead and np.ndim(array) > len(leaf.shape) and 0 not in np.shape(array)[: len(lead)]:
                lead = np.shape(array)[: len(lead)]
            shape = (*lead, *leaf.shape)
            if not isinstance(array, _ARRAYS) or array.dtype != leaf.dtype or array.shape != shape:
                is_read = self._converts and isinstance(array, np.ndarray)
                found = np.asarray(value) if is_read else value
                raise SpecError(_describe_mismatch(leaf, found, lead, way_out))
            if leaf.dtype.kind == "f" and self._largest is not None:
                check_size(leaf.name, array, constraints.LARGEST, axes=axes, way_out=way_out)
            if leaf.bounds is not None and leaf.path[0] not in unbounded:
                if self._converts:
                    assert isinstance(array, np.ndarray) and isinstance(leaf.spec, BoundedArray)
                    check_bounds(leaf.name, array, leaf.spec, axes=axes, way_out=way_out)
                elif (is_wrong := np.asarray((array < leaf.bounds[0]) | (array > leaf.bounds[1]))).any():
                    raise _out_of_bounds(leaf.name, array, is_wrong, leaf.bounds, axes, way_out)
        return leaves

    def _check_tensor(self, leaf: Leaf, value: Any, lead: tuple[int | None, ...]) -> None:
        """Checks the form of a tensor. Torch need not be imported for it."""
        dtype, shape, kind = f"torch.{leaf.dtype.name}", (*lead, *leaf.shape), self._device.type
        if str(getattr(value, "dtype", "")) != dtype or value.shape != shape or value.device.type != kind:
            raise SpecError(
                f"`{leaf.name}` must be a tensor, {leaf.dtype} of shape {shape} on {self._device}, got "
                f"{'a numpy array' if isinstance(value, _ARRAYS) else _describe_value(value)}. "
                f"{self._way_out or _AGREE}"
            )

    def _read(self, leaf: Leaf, value: Any) -> Any:
        """Returns a leaf as numpy converts it."""
        try:
            # Without negative strides, which torch does not support, where the array is handed on.
            array = np.asarray(value, order="C" if self._converts else None)
        except (RuntimeError, TypeError, ValueError):  # a list of lists of different lengths
            return value
        if array.dtype == object:
            return value
        if self._converts:
            return as_dtype(array, leaf.dtype, across_kinds=self._converts == "numbers")
        if leaf.path[0] in self._any_number and array.dtype.kind in "biuf":
            if np.can_cast(array.dtype, leaf.dtype, "same_kind"):
                return array.astype(leaf.dtype)
        return array

    def _make_plan(self, spec: types.NestedSpec, name: str, path: tuple[str, ...]) -> Leaf | Branch:
        if isinstance(spec, specs.Array):
            leaf = self._make_leaf(spec, name, path)
            self._leaves.append(leaf)
            return leaf
        is_named_tuple = hasattr(spec, "_fields")
        kind: Any = type(spec)
        if isinstance(spec, Mapping):
            kind, fields = Mapping, tuple(sorted(spec))
            children = [spec[field] for field in fields]
        elif isinstance(spec, tuple | list):
            fields = getattr(spec, "_fields", tuple(range(len(spec))))
            children = list(spec)
            if self._exact or self._converts or not name:
                kind = (tuple, list)
        else:
            raise ValueError(
                f"The spec of `{name}` must be a nest (tuples, lists, dicts) of dm_env specs, got {spec!r}."
            )
        plans = []
        for field, child in zip(fields, children, strict=True):
            child_name = f"{name}.{field}" if is_named_tuple else f"{name}[{field!r}]"
            plans.append(self._make_plan(child, child_name if name else str(field), (*path, str(field))))
        return Branch(name, kind, is_named_tuple, fields, tuple(plans), set())

    def _make_leaf(self, spec: specs.Array, name: str, path: tuple[str, ...]) -> Leaf:
        dtype = np.dtype(spec.dtype)
        is_plain = dtype.kind in "biuf" and (
            self._exact or bool(self._converts) or type(spec).validate in _PLAIN
        )
        field = path[0] if path else ""
        largest = self._largest if dtype.kind == "f" else None
        spec_bounds = None
        is_bounded = self._bounded is None or field in self._bounded
        if self._converts and isinstance(spec, specs.DiscreteArray):  # which a network makes one-hot
            is_bounded = True
        if isinstance(spec, specs.BoundedArray) and is_bounded:
            low, high = bounds(spec)
            limits: Any = (-np.inf, np.inf)
            if dtype.kind in "iu":
                limits = (np.iinfo(dtype).min, np.iinfo(dtype).max)
            if (low > limits[0]).any() or (high < limits[1]).any():
                spec_bounds = low, high
        low_number, high_number = (-np.inf, np.inf) if largest is None else (-largest, largest)
        scalars: tuple[Any, ...] = ()
        if is_plain and dtype.kind == "f" and spec.shape == ():
            scalars = (float, int, np.floating, np.integer) if field in self._any_number else (dtype.type,)
            if dtype == np.float64 and not self._exact:
                scalars += (float,)
            if spec_bounds is not None:
                low_number = max(low_number, float(spec_bounds[0]))
                high_number = min(high_number, float(spec_bounds[1]))
        numbers = scalars, low_number, high_number
        return Leaf(name, path, spec, dtype, spec.shape, is_plain, *numbers, spec_bounds, largest)


def _collect(plan: Leaf | Branch, nest: Any, leaves: list[Any]) -> tuple[Branch, Any] | None:
    """Appends the leaves of a nest. Returns the first branch that does not match and its value, if any."""
    if isinstance(plan, Leaf):
        leaves.append(nest)
        return None
    _, kind, is_named_tuple, fields, children, fitting = plan
    values = nest
    if type(nest) not in fitting:
        if not isinstance(nest, kind) or len(nest) != len(fields):
            return plan, nest
        if kind is Mapping:
            if not all(field in nest for field in fields):
                return plan, nest
            values = [nest[field] for field in fields]
        elif hasattr(nest, "_fields"):
            if is_named_tuple and nest._fields != fields:
                return plan, nest
            fitting.add(type(nest))
    for value, child in zip(values, children, strict=True):
        if type(child) is Leaf:
            leaves.append(value)
        elif (misfit := _collect(child, value, leaves)) is not None:
            return misfit
    return None


def _validate(leaf: Leaf, value: Any) -> None:
    """Checks a leaf with its spec's own `validate`, for example for text."""
    try:
        leaf.spec.validate(value)
    except ValueError as error:
        raise SpecError(
            f"`{leaf.name}` must be {describe(leaf.spec)}, got {_describe_value(value)}: {error}"
        ) from error


def _out_of_bounds(
    name: str,
    value: Any,
    is_wrong: np.ndarray,
    ends: tuple[np.ndarray, np.ndarray],
    axes: Sequence[str],
    way_out: str,
) -> SpecError:
    """Makes the error for numbers [..., *shape] out of their bounds [*shape]."""
    low, high = (np.broadcast_to(end, np.shape(value))[is_wrong][0] for end in ends)
    field = name.partition("[")[0]
    is_environments = field in ("observation", "reward", "discount")
    default = (
        f"Correct {f'the environment, or its `{field}_spec`' if is_environments else 'it, or its spec'}."
    )
    return SpecError(
        f"`{name}` must be in [{low:g}, {high:g}], the bounds of its spec, got "
        f"{_describe_first(value, is_wrong, axes)}. {way_out or default}"
    )


def _describe_structure(plan: Branch, nest: Any) -> str:
    is_named = plan.kind is Mapping or plan.is_named_tuple
    expected = f"the fields {list(plan.fields)}" if is_named else f"{len(plan.fields)} elements"
    if isinstance(nest, Mapping):
        found = f"the fields {sorted(nest, key=str)}"
    elif isinstance(nest, tuple | list):
        found = f"the fields {list(nest._fields)}" if hasattr(nest, "_fields") else f"{len(nest)} elements"
    else:
        found = _describe_value(nest)
    if found == expected:  # but of another type
        expected, found = (
            f"{text} in a {kind.__name__}" for text, kind in ((expected, plan.kind), (found, type(nest)))
        )
    return f"`{plan.name}` must have {expected}, got {found}."


def _describe_mismatch(leaf: Leaf, value: Any, lead: Sequence[int | None], way_out: str) -> str:
    expected = f"{leaf.dtype} of shape {(*lead, *leaf.shape)}"
    if None in lead:
        expected = f"{leaf.dtype} of shape {leaf.shape} behind a leading axis of 1 or more"
    if way_out:
        pass
    elif not isinstance(value, _ARRAYS):
        way_out = "Make it a numpy array or scalar, as SinglePrecisionWrapper does for an environment."
    elif value.dtype == leaf.dtype:
        way_out = _AGREE
    elif not value.dtype.isnative:
        way_out = "Convert it to native byte order."
    elif (value.dtype.name, leaf.dtype.name) in (("float64", "float32"), ("int64", "int32")):
        way_out = "Cast it, or wrap the environment in SinglePrecisionWrapper."
    else:
        way_out = "Cast it, or correct its spec."
    is_tensor = not isinstance(value, _ARRAYS) and hasattr(value, "device") and hasattr(value, "shape")
    return (
        f"`{leaf.name}` must be {expected}, got {'a tensor, ' * is_tensor}{_describe_value(value)}. {way_out}"
    )


def _describe_value(value: Any) -> str:
    if isinstance(value, _ARRAYS):
        byte_order = "" if value.dtype.isnative else " (foreign byte order)"
        return f"{value.dtype.name}{byte_order} of shape {value.shape}"
    if hasattr(value, "device") and hasattr(value, "shape"):  # a tensor
        return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)} on {value.device}"
    if isinstance(value, bool | int | float | str | None):
        return repr(value)
    if isinstance(value, specs.Array):
        return describe(value)
    if isinstance(value, Mapping):
        return f"a dict of {sorted(map(str, value))}"
    return f"a {type(value).__name__}"


def _describe_first(value: Any, is_wrong: Any, axes: Sequence[str] = ()) -> str:
    """Describes the first wrong element of an array and its index, or a wrong scalar."""
    index = tuple(int(i) for i in np.argwhere(is_wrong)[0])
    place = [f"{name} {number} (counted from 0)" for name, number in zip(axes, index, strict=False)]
    if len(index) > len(place):
        place.append(f"index {index[len(place) :]}")
    return f"{np.asarray(value)[index]} at {', '.join(place)}" if place else str(value[()])
