"""An environment and an agent that are held to the specs."""

import collections
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

import dm_env
import numpy as np
import tree

from minerva_acme import specs, types
from minerva_acme.wrappers import base, calls

_LOG = logging.getLogger(__name__)
_HUGE = 1e12
"""In single precision the next number is 65,536 away: a sum or a mean with it loses what is of size 1."""

_seen: collections.Counter[tuple[str, str, str]] = collections.Counter()
"""How often this process saw what it warns of, by environment, field and kind."""


class SpecCheck:
    """Checks the timesteps of one environment, in the order in which they come, against its specs.

        found                                          strict      otherwise
        wrong structure, shape or dtype                error       error; of a reward any number is taken
        not finite, or beyond 1e15                     error       error
        no reward, or no discount, where one is due    error       error
        discount out of bounds                         error       error
        observation or reward out of bounds            error       warning, once for each field
        beyond 1e12                                    -           warning, at the 1st, 10th, 100th... time

    A message names the environment, the step, the episode and the field. Steps count from an episode's
    start, episodes from when the check was made. Environments of one name share their warnings in a process.

    A timestep with nothing to tell takes 1.6 us of CPU time where the observation is one array, 3.5 us where
    that has bounds, and 4.6 us where it is a dict of five.
    """

    def __init__(self, environment_spec: specs.EnvironmentSpec, *, name: str, strict: bool) -> None:
        """Args: environment_spec: what to hold to. name: of the environment. strict: see the table."""
        self._specs = environment_spec
        self._name, self._index = name, ""
        self._strict = strict
        self._step = self._episode = 0
        self._fits_observation = _fits(environment_spec.observations)
        self._fits_reward = _fits(environment_spec.rewards, any_number=not strict)
        self._fits_discount = _fits(environment_spec.discounts, any_number=not strict)

    def set_index(self, index: int) -> None:
        """Says which of a vector's environments it is."""
        self._index = f", environment {index}"

    def describe_place(self) -> str:
        """Where the newest timestep came from."""
        return f"{self._name}{self._index}, step {self._step} of episode {self._episode}"

    def __call__(self, timestep: dm_env.TimeStep) -> None:
        """Checks a timestep.

        Raises:
            SpecError: as in the table.
        """
        if timestep.first():
            self._step = 0
            self._episode += 1
            fits = timestep.reward is None and timestep.discount is None
        else:
            self._step += 1
            fits = self._fits_reward(timestep.reward) and self._fits_discount(timestep.discount)
        if not (fits and self._fits_observation(timestep.observation)):
            self._examine(timestep)

    def _examine(self, timestep: dm_env.TimeStep) -> None:
        """Says what is wrong with a timestep, if something is."""
        try:
            if not timestep.first():
                for name in ("reward", "discount"):
                    if getattr(timestep, name) is None:
                        raise specs.SpecError(
                            f"`{name}` is None at a {timestep.step_type.name} timestep. Only FIRST has none."
                        )
            if self._strict:
                specs.check_timestep(timestep, self._specs)
                return
            unbounded = self._specs._replace(
                observations=tree.map_structure(_without_bounds, self._specs.observations),
                rewards=tree.map_structure(_without_bounds, self._specs.rewards),
            )
            if not timestep.first():
                timestep = timestep._replace(
                    reward=_cast(timestep.reward, unbounded.rewards),
                    discount=_cast(timestep.discount, unbounded.discounts),
                )
            specs.check_timestep(timestep, unbounded)
        except specs.SpecError as error:
            raise specs.SpecError(f"{self.describe_place()}: {error}") from error
        self._warn("observation", timestep.observation)
        if not timestep.first():
            self._warn("reward", timestep.reward)

    def _warn(self, name: str, nest: types.NestedArray) -> None:
        nested_spec = getattr(self._specs, f"{name}s")
        for (path, spec), value in zip(tree.flatten_with_path(nested_spec), tree.flatten(nest), strict=True):
            field = specs.leaf_name(name, path)
            if spec.dtype.kind == "f" and np.size(value) and (largest := np.abs(value).max()) > _HUGE:
                count = self._count(field, "size")
                if str(count).strip("0") == "1":
                    is_reward = name == "reward"
                    _LOG.warning(
                        "%s: `%s` reaches %g%s. Beside that, single precision loses what is of size 1. Clip "
                        "or rescale it in a wrapper, such as %s.",
                        self.describe_place(),
                        field,
                        largest,
                        f", the {count:,}th time" if count > 1 else "",
                        "gymnasium.wrappers.ClipReward" if is_reward else "ObservationTransformWrapper",
                    )
            elif isinstance(spec, specs.BoundedArray):
                low, high = specs.bounds(spec)
                is_outside = np.ravel((value < low) | (value > high))
                if is_outside.any():
                    if self._count(field, "bounds") == 1:
                        _LOG.warning(
                            "%s: `%s` must be %s, got %g. This is not checked any more. Clip it, or correct "
                            "the spec.",
                            self.describe_place(),
                            field,
                            specs.describe(spec),
                            np.ravel(value)[is_outside][0],
                        )
                    self._forget_bounds(name, path)

    def _count(self, field: str, kind: str) -> int:
        key = (self._name, field, kind)
        _seen[key] += 1
        return _seen[key]

    def _forget_bounds(self, name: str, path: tuple[Any, ...]) -> None:
        """What is known to leave its bounds costs no more time."""
        spec = tree.map_structure_with_path(
            lambda other, leaf: _without_bounds(leaf) if other == path else leaf,
            getattr(self._specs, f"{name}s"),
        )
        self._specs = self._specs._replace(**{f"{name}s": spec})
        setattr(self, f"_fits_{name}", _fits(spec, any_number=name == "reward"))  # as it is not strict


class SpecCheckWrapper(base.EnvironmentWrapper):
    """Checks every timestep that comes out as `SpecCheck` does, and if `strict` every action that goes in.

    What the environment raises gets a note that says where that was. An action that the environment
    ignores, before the first reset and after LAST, is not looked at.
    """

    def __init__(
        self, environment: dm_env.Environment, *, name: str | None = None, strict: bool = True
    ) -> None:
        """Initialises the wrapper with the specs as they are now.

        Args:
            environment: what to check.
            name: for messages; None: that of its type.
            strict: as in `SpecCheck`; for those who write environments. Otherwise for training.
        """
        super().__init__(environment)
        self._action_spec = environment.action_spec() if strict else None
        self._check = SpecCheck(
            specs.make_environment_spec(environment), name=name or type(environment).__name__, strict=strict
        )
        self._reset_next_step = True

    def set_index(self, index: int) -> None:
        """Says which of a vector's environments it is, for messages."""
        self._check.set_index(index)

    def reset(self) -> dm_env.TimeStep:
        """Starts an episode.

        Raises:
            SpecError: the timestep is not FIRST or breaks a spec; the message names the leaf.
        """
        timestep = self._call("reset")
        if not timestep.first():
            raise specs.SpecError(f"`reset` must return a FIRST timestep, got {timestep.step_type.name}.")
        return self._convert(timestep)

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        """Makes a step.

        Raises:
            SpecError: the action or the timestep breaks a spec; the message names the leaf.
        """
        if self._action_spec is not None and not self._reset_next_step:
            specs.check_conforms("action", action, self._action_spec)
        return self._convert(self._call("step", action))

    def _call(self, method: str, *arguments: Any) -> dm_env.TimeStep:
        try:
            return calls.call(self._environment, method, *arguments)
        except Exception as error:
            error.add_note(f"Raised after {self._check.describe_place()}.")
            raise

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        self._reset_next_step = timestep.last()
        self._check(timestep)
        return timestep


def _fits(spec: types.NestedSpec, any_number: bool = False) -> Callable[[Any], bool]:
    """Makes a quick check of a nest: a value that passes is right; one that does not may be so.

    Args:
        spec: of the nest.
        any_number: whether a scalar of a float's spec may be of any dtype.
    """
    if isinstance(spec, Mapping):
        return _Branch(dict, {key: _fits(part, any_number) for key, part in spec.items()})
    if isinstance(spec, specs.Array):
        return _Leaf(spec, any_number)
    return _Branch(type(spec), {index: _fits(part, any_number) for index, part in enumerate(spec)})


class _Branch:
    def __init__(self, kind: type[Any], parts: Mapping[Any, Callable[[Any], bool]]) -> None:
        self._kind, self._parts = kind, tuple(parts.items())

    def __call__(self, value: Any) -> bool:
        if not isinstance(value, self._kind) or len(value) != len(self._parts):
            return False
        try:
            for key, fits in self._parts:
                if not fits(value[key]):
                    return False
        except KeyError:
            return False
        return True


class _Leaf:
    def __init__(self, spec: specs.Array, any_number: bool) -> None:
        self._dtype, self._shape = np.dtype(spec.dtype), spec.shape
        self._is_float = self._dtype.kind == "f"
        self._is_number = self._dtype.kind in "biuf"
        self._bounds = None
        self._low, self._high = -_HUGE, _HUGE
        if self._is_number and isinstance(spec, specs.BoundedArray):
            low, high = specs.bounds(spec)
            if spec.shape == ():
                self._low, self._high = max(self._low, float(low)), min(self._high, float(high))
            limits = (-np.inf, np.inf)
            if self._dtype.kind in "iu":
                limits = (np.iinfo(self._dtype).min, np.iinfo(self._dtype).max)
            if (low > limits[0]).any() or (high < limits[1]).any():
                self._bounds = low, high
        self._scalars: tuple[type, ...] = ()
        if self._is_float and self._shape == ():
            self._scalars = (float, int, np.floating, np.integer) if any_number else (self._dtype.type,)
            if self._dtype == np.float64:
                self._scalars += (float,)

    def __call__(self, value: Any) -> bool:
        if isinstance(value, self._scalars):
            number: Any = value
            return bool(self._low <= number <= self._high)
        if (
            not self._is_number
            or not isinstance(value, (np.ndarray, np.generic))
            # A native dtype of numpy's is one object; unequal where the byte order differs.
            or (value.dtype is not self._dtype and value.dtype != self._dtype)
            or value.shape != self._shape
        ):
            return False
        if self._is_float:
            flat = value.ravel()
            # A fourth of the time of `isfinite`, and not so of what is not a number.
            if not flat.dot(flat) <= _HUGE * _HUGE:
                return False
        if self._bounds is None:
            return True
        low, high = self._bounds
        return not np.count_nonzero((value < low) | (value > high))  # a third of the time of `any`


def _without_bounds(spec: specs.Array) -> specs.Array:
    return specs.Array(spec.shape, spec.dtype, spec.name)


def _cast(nest: types.NestedArray, spec: types.NestedSpec) -> types.NestedArray:
    """Numbers in the dtypes of their specs, as `SinglePrecisionWrapper` takes them; the rest as it is."""

    def cast(leaf_spec: specs.Array, value: Any) -> Any:
        array = np.asarray(value)
        if array.dtype.kind in "biuf" and np.can_cast(array.dtype, leaf_spec.dtype, "same_kind"):
            return array.astype(leaf_spec.dtype)[()]
        return value

    with contextlib.suppress(TypeError, ValueError):  # of another structure, which is told afterwards
        return tree.map_structure(cast, spec, nest)
    return nest
