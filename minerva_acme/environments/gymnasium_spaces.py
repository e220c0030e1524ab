"""Conversion between Gymnasium's spaces and dm_env's specs, and between their values.

    Box                      Array if unbounded, otherwise BoundedArray
    Discrete                 DiscreteArray, counted from 0 regardless of the space's start
    MultiDiscrete            BoundedArray of integers
    MultiBinary              BoundedArray of int8 in [0, 1]
    Text, or any of strings  StringArray
    Dict, Tuple              dict, tuple of these

In the other direction, bounded integers become MultiDiscrete, or MultiBinary if they are int8 in [0, 1];
unsigned integers (images) and scalars become a Box; DiscreteArray becomes a Discrete of int64, which
Gymnasium's checker requires. The set of values is the same in both directions.
"""

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tree
from gymnasium import spaces, vector

from minerva_acme import specs, types
from minerva_acme.environments import task_actions
from minerva_acme.wrappers import single_precision

OLD_GYM = (
    "the old package `gym`, which Gymnasium has replaced. Register the environment with gymnasium, or "
    'convert it to Gymnasium with shimmy: pip install "shimmy[gym-v21]" (or gym-v26), then '
    'gymnasium.make("GymV21Environment-v0", env=...) (or V26).'
)
"""The end of error messages for objects of that package, with the way out."""


def environment_spec(
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    reward_space: Any = None,
    reward_names: Sequence[str] | None = None,
) -> specs.EnvironmentSpec:
    """Returns the specs of an environment with these spaces.

    Args:
        observation_space: The space of observations.
        action_space: The space of actions.
        reward_space: The space of a reward of several numbers, [K], as in MO-Gymnasium; None, or a space of
            shape (), for one number.
        reward_names: The names of the K numbers, or None for 0 ... K - 1.

    Raises:
        ValueError: A space has no spec, or the names do not fit.
    """
    return specs.EnvironmentSpec(
        observations=to_spec(observation_space, "observation"),
        actions=to_spec(action_space, "action"),
        rewards=_reward_spec(reward_space, reward_names),
        discounts=specs.BoundedArray((), np.float64, 0.0, 1.0, name="discount"),
    )


def vector_spec(
    vector_environment: vector.VectorEnv[Any, Any, Any], reward_names: Sequence[str] | None = None
) -> specs.EnvironmentSpec:
    """Returns the specs of one environment of a vector, in 32 bits.

    Raises:
        ValueError: A space has no spec, or the names do not fit.
    """
    spec = environment_spec(
        vector_environment.single_observation_space,
        vector_environment.single_action_space,
        reward_space(vector_environment),
        reward_names,
    )
    narrow: specs.EnvironmentSpec = tree.map_structure(single_precision.narrow_spec, spec)
    return narrow


def from_vector(vector_environment: vector.VectorEnv[Any, Any, Any], observation: Any) -> types.NestedArray:
    """Converts an observation of a vector, or a batch of them, to `vector_spec`, in new memory."""
    space = vector_environment.single_observation_space
    return single_precision.narrow(from_gymnasium(space, observation))


def autoreset_mode(vector_environment: vector.VectorEnv[Any, Any, Any]) -> vector.AutoresetMode:
    """Returns when a vector resets its environments.

    Raises:
        ValueError: It does not tell.
    """
    mode = vector_environment.metadata.get("autoreset_mode")
    if mode is None:
        raise ValueError(
            "`vector_environment` must have `metadata['autoreset_mode']`, which tells when it resets, got "
            "none. Set it to one of gymnasium.vector.AutoresetMode."
        )
    return vector.AutoresetMode(mode)


def reward_space(environment: Any) -> Any:
    """Returns the `reward_space` of the outermost wrapper that has one, or of the environment, or None."""
    while not hasattr(environment, "reward_space") and hasattr(environment, "env"):
        environment = environment.env
    return getattr(environment, "reward_space", None)


def to_reward(spec: types.NestedSpec, value: Any) -> types.NestedArray:
    """Converts a reward of an environment to its spec: a number, or a dict of numbers from [K].

    Raises:
        SpecError: It does not have K numbers.
    """
    reward = np.asarray(value, np.float64)
    if not isinstance(spec, Mapping):
        return reward[()]
    if reward.shape != (len(spec),):
        raise specs.SpecError(
            f"`reward` must have {len(spec)} numbers, those of `reward_space`, got {value!r}. To sum them, "
            "use `wrappers.ScalarRewardWrapper` in place of a wrapper of Gymnasium's."
        )
    return dict(zip(spec, reward, strict=True))


def _reward_spec(space: Any, names: Sequence[str] | None) -> types.NestedSpec:
    shape = () if space is None else tuple(space.shape)
    if len(shape) > 1:
        raise ValueError(f"`reward_space` must be a vector, got {space}. Flatten it in a wrapper.")
    found = [str(index) for index in range(*shape)] if shape else []
    if names is not None and len({*names}) == len(names) == len(found):
        found = [*names]
    elif names is not None:
        raise ValueError(
            f"`reward_names` must be {len(found)} names, one for each number of `reward_space`, got "
            f"{', '.join(names) or 'none'}."
        )
    if not found:
        return specs.Array((), np.float64, name="reward")
    return {name: specs.Array((), np.float64, name=name) for name in found}


def to_spec(space: spaces.Space[Any], name: str, *, from_zero: bool = True) -> types.NestedSpec:
    """Returns the spec, or nest of specs, of a space.

    Args:
        space: The space.
        name: The name of its values.
        from_zero: Whether to count the values of a Discrete from 0. If False, one that starts elsewhere
            becomes a bounded integer.

    Raises:
        ValueError: A space has no spec; the message names the part.
    """
    match space:
        case spaces.Box():
            if np.isinf(space.low).all() and np.isinf(space.high).all():
                return specs.Array(space.shape, space.dtype, name=name)
            return specs.BoundedArray(space.shape, space.dtype, space.low, space.high, name=name)
        case spaces.Discrete() if space.start and not from_zero:
            return specs.BoundedArray((), space.dtype, space.start, space.start + space.n - 1, name=name)
        case spaces.Discrete():
            return specs.DiscreteArray(int(space.n), dtype=space.dtype, name=name)
        case spaces.MultiDiscrete():
            return specs.BoundedArray(
                space.shape, space.dtype, space.start, space.start + space.nvec - 1, name=name
            )
        case spaces.MultiBinary():
            return specs.BoundedArray(space.shape, space.dtype, 0, 1, name=name)
        case spaces.Dict():
            return {
                key: to_spec(part, f"{name}/{key}", from_zero=from_zero) for key, part in space.spaces.items()
            }
        case spaces.Tuple():
            return tuple(
                to_spec(part, f"{name}/{i}", from_zero=from_zero) for i, part in enumerate(space.spaces)
            )
    if is_text(space):
        return specs.StringArray((), name=name)
    if is_of_gym(space):
        raise ValueError(f"`{name}` space must be one of Gymnasium's, got {space} of {OLD_GYM}")
    raise ValueError(
        f"`{name}` space must be made of Box, Discrete, MultiDiscrete, MultiBinary, Text, Dict and Tuple, "
        f"got {space}. Convert it with a Gymnasium wrapper first."
    )


def mark_actions(environment: Any, space: spaces.Space[Any]) -> None:
    """Notes on an environment, or a vector of them, the numbers of a space of actions that has a start."""
    own = to_spec(space, "action", from_zero=False)
    if own != to_spec(space, "action"):
        task_actions.mark(environment, own)


def is_text(space: spaces.Space[Any]) -> bool:
    """Returns whether the values of a space are strings, as in `Text` and in MiniGrid's own space."""
    return isinstance(space, spaces.Space) and space.dtype is not None and space.dtype.kind == "U"


def is_of_gym(thing: Any) -> bool:
    """Returns whether the class of an environment or a space is from the old package `gym`."""
    return any(kind.__module__.partition(".")[0] == "gym" for kind in type(thing).__mro__)


def to_space(spec: types.NestedSpec, name: str) -> spaces.Space[Any]:
    """Returns the space of a spec, or of a nest of specs.

    Raises:
        ValueError: A spec has no space; the message names the leaf.
    """
    match spec:
        case Mapping():
            return spaces.Dict({key: to_space(part, f"{name}/{key}") for key, part in spec.items()})
        case specs.DiscreteArray():
            return spaces.Discrete(spec.num_values)
        case specs.BoundedArray():
            return _bounded_space(spec)
        case specs.Array() if spec.dtype.kind in "iubf":
            return spaces.Box(*_limits(spec.dtype), spec.shape, spec.dtype.type)
        case Sequence():
            return spaces.Tuple([to_space(part, f"{name}/{i}") for i, part in enumerate(spec)])
    raise ValueError(
        f"`{name}` spec must be made of arrays of numbers, dicts and tuples, got {specs.describe(spec)}. "
        "Leave it out, or encode it, in a wrapper around the dm_env environment."
    )


def from_gymnasium(space: spaces.Space[Any], value: Any, name: str = "observation") -> types.NestedArray:
    """Converts a value of a space to a value of its spec, in new memory.

    Raises:
        SpecError: Its structure differs from the space's, or the space's dtype cannot hold it; the message
            names the part.
    """
    match space:
        case spaces.Dict():
            if not isinstance(value, Mapping) or value.keys() != space.spaces.keys():
                raise _misfit(space, value, name)
            return {
                key: from_gymnasium(part, value[key], f"{name}[{key!r}]")
                for key, part in space.spaces.items()
            }
        case spaces.Tuple():
            if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
                raise _misfit(space, value, name)
            return tuple(
                from_gymnasium(part, value[index], f"{name}[{index}]")
                for index, part in enumerate(space.spaces)
            )
    if is_text(space):
        return np.array(value, dtype=object)
    array, dtype = np.asarray(value), np.dtype(space.dtype)
    if array.dtype.kind not in "biuf":
        raise _misfit(space, value, name)
    if array.dtype == dtype or dtype.kind == "f":
        # A copy: some environments write their next observation into the same array.
        converted = array.astype(dtype)
    else:
        with np.errstate(invalid="ignore"):  # from NaN as an integer
            converted = array.astype(dtype)
        if not (converted == array).all():
            raise _misfit(space, value, name)
    return np.asarray(converted - space.start) if isinstance(space, spaces.Discrete) else converted


def to_gymnasium(space: spaces.Space[Any], value: types.NestedArray) -> Any:
    """Converts a value of a spec to a value of its space, in new memory."""
    match space:
        case spaces.Dict():
            return {key: to_gymnasium(part, value[key]) for key, part in space.spaces.items()}
        case spaces.Tuple():
            return tuple(to_gymnasium(part, v) for part, v in zip(space.spaces, value, strict=True))
        case spaces.Discrete():
            return space.dtype.type(value) + space.start
    return np.array(value, dtype=space.dtype)


def _misfit(space: spaces.Space[Any], value: Any, name: str) -> specs.SpecError:
    found = reprlib.repr(value)
    if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "biuf":
        found = f"{value.dtype} of shape {value.shape} in [{value.min():g}, {value.max():g}]"
    return specs.SpecError(
        f"`{name}` must be an element of its space, {space}, got {found}. Correct the environment or its "
        "space."
    )


def _bounded_space(spec: specs.BoundedArray) -> spaces.Space[Any]:
    low, high = specs.bounds(spec)
    if spec.dtype.kind == "i" and spec.shape:
        if spec.dtype == np.int8 and (low == 0).all() and (high == 1).all():
            return spaces.MultiBinary(spec.shape[0] if len(spec.shape) == 1 else spec.shape)
        num_values = high.astype(object) - low.astype(object) + 1  # Python's integers do not overflow
        if (num_values <= _limits(spec.dtype)[1]).all():
            return spaces.MultiDiscrete(num_values.astype(spec.dtype), dtype=spec.dtype.type, start=low)
    return spaces.Box(low, high, spec.shape, spec.dtype.type)


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    if dtype.kind == "f":
        return -np.inf, np.inf
    return (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
