"""Recorded episodes: their form, and checks of them against an environment's spec.

Shapes: T transitions of an episode.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import dm_env
import numpy as np
import tree

from minerva_acme import constraints, specs, types


class Episode(NamedTuple):
    """One episode, or the part of one until it was cut off, as nests of arrays with time as first axis."""

    observation: types.NestedArray  # [T + 1, ...]
    action: types.NestedArray  # [T, ...]  as the environment received it
    reward: np.ndarray  # [T]
    terminated: bool  # whether the last observation is terminal, of value 0; otherwise a time limit ended it
    extras: Mapping[str, Any] = {}  # [T, ...]  what the policy recorded, such as `log_prob` and `raw_action`

    @property
    def num_steps(self) -> int:
        """The number of transitions, T."""
        return len(self.reward)

    @property
    def discount(self) -> np.ndarray:
        """The environment's discounts, float32 [T]: 1, or 0 at a true terminal."""
        discount = np.ones(self.num_steps, np.float32)
        discount[-1] = not self.terminated
        return discount


Recorded: TypeAlias = Episode | Mapping[str, Any] | Sequence[tuple[Any, ...]]
"""An episode in any of the forms that `as_episode` takes."""

_NAMES = {"observations": "observation", "actions": "action", "rewards": "reward", "infos": "extras"}


def as_episode(recorded: Recorded) -> Episode:
    """Returns an episode from another form.

    Args:
        recorded: An `Episode`; a dict with `observation` [T + 1, ...], `action`, `reward` and either
            `terminated` or `terminations` and `truncations` [T], in the singular or, as Minari has it, in the
            plural; or a sequence of (action, timestep) or (action, timestep, extras), the first with FIRST
            and without an action. `terminated` and `truncated` may be [T] too.

    Raises:
        ValueError: It has another form, no step, or a discount that is not 1, or 0 at the end.
    """
    if isinstance(recorded, Episode):
        return recorded._replace(terminated=_ends(recorded._asdict(), np.size(recorded.reward)))
    if not isinstance(recorded, Mapping):
        return _from_timesteps(recorded)
    fields = {_NAMES.get(name, name): value for name, value in recorded.items()}
    if missing := [name for name in ("observation", "action", "reward") if name not in fields]:
        raise ValueError(
            f"An episode must have `observation`, `action` and `reward`, got {sorted(recorded)}. Add "
            f"{', '.join(missing)}."
        )
    reward = np.asarray(fields["reward"])
    if "terminated" not in fields and "terminations" not in fields:
        raise ValueError(
            "An episode must say whether its last observation is terminal, got neither `terminated` nor "
            "`terminations`. Add `terminated`: False after a time limit."
        )
    terminated = _ends(fields, len(reward))
    extras = fields.get("extras") or {}
    if not isinstance(extras, Mapping):
        raise ValueError(
            f"`extras` or `infos` of an episode must be a dict of what was recorded with each step, got "
            f"{type(extras).__name__}. Leave it out, or convert it."
        )
    extras = {
        name: tree.map_structure(lambda leaf: leaf[-len(reward) :] if leaf.ndim else leaf, _as_arrays(value))
        for name, value in extras.items()
    }
    observation, action = _as_arrays(fields["observation"]), _as_arrays(fields["action"])
    return Episode(observation, action, reward, terminated, extras)


def _ends(fields: Mapping[str, Any], num_steps: int) -> bool:
    """Returns whether an episode ends with a true terminal.

    Raises:
        ValueError: The signals are not [T], or one of them is set before the end.
    """
    ends = "terminated" if "terminated" in fields else "terminations"
    for name in (ends, "truncated", "truncations"):
        signal = fields.get(name)
        if signal is None or (np.ndim(signal) == 0 and name in ("terminated", "truncated")):
            continue
        if np.shape(signal) != (num_steps,) or np.any(signal[:-1]):
            raise ValueError(
                f"`{name}` of an episode must be one for each of its {num_steps} steps and False before the "
                f"last, got shape {np.shape(signal)}, true at {np.flatnonzero(signal)[:3].tolist()}. Give "
                "each episode alone."
            )
    return num_steps > 0 and bool(np.ravel(fields[ends])[-1])


def _from_timesteps(recorded: Any) -> Episode:
    found = recorded if isinstance(recorded, Iterable) else ()
    steps = [tuple(step) if isinstance(step, tuple | list) else () for step in found]
    is_one = all(len(step) in (2, 3) and isinstance(step[1], dm_env.TimeStep) for step in steps)
    if not is_one or len(steps) < 2 or not steps[0][1].first():
        raise ValueError(
            "An episode must be a `datasets.Episode`, a dict of arrays, or a sequence of (action, timestep) "
            f"that begins with (None, FIRST) and has a step, got {type(recorded).__name__}."
        )
    timesteps = [step[1] for step in steps]
    for index, timestep in enumerate(timesteps[1:], 2):
        if timestep.first() or (timestep.last() and index < len(timesteps)):
            raise ValueError(
                f"An episode must end with its only LAST and have one FIRST, got {timestep.step_type.name} "
                "in between. Give each episode alone."
            )
        check_discount(timestep)
    extras = [as_dict(step[2]) for step in steps[1:] if len(step) == 3]
    return Episode(
        _stack([timestep.observation for timestep in timesteps]),
        _stack([step[0] for step in steps[1:]]),
        np.stack([np.asarray(timestep.reward) for timestep in timesteps[1:]]),
        is_terminal(timesteps[-1]),
        _stack(extras) if len(extras) == len(steps) - 1 else {},
    )


def is_terminal(timestep: dm_env.TimeStep) -> bool:
    """Returns whether a timestep ends an episode by a true terminal."""
    return bool(timestep.last() and timestep.discount == 0)


def check_discount(timestep: dm_env.TimeStep) -> None:
    """Checks that a discount can be recorded: as a termination, or as none.

    Raises:
        ValueError: It is neither 1 nor, at LAST, 0.
    """
    allowed = (0, 1) if timestep.last() else (1,)
    if np.ndim(timestep.discount) or timestep.discount not in allowed:
        raise ValueError(
            "A recorded discount must be 1, or 0 at a terminal LAST, since the file holds terminations only, "
            f"got {timestep.discount} at {timestep.step_type.name}. Set it in a wrapper of the environment, "
            "or do not record."
        )


def as_dict(extras: types.NestedArray) -> dict[str, Any]:
    """Returns what a policy recorded as a dict of its fields, without the empty ones.

    Raises:
        ValueError: The extras have no names.
    """
    named = _named(extras)
    if _is_empty(named):
        return {}
    if not isinstance(named, Mapping):
        raise ValueError(
            f"Extras must be a named tuple or a dict to be recorded, got {type(extras).__name__}. Name them "
            "in the policy."
        )
    return dict(named)


def _named(nest: Any) -> Any:
    """Returns a nest whose named tuples are dicts, without empty parts."""
    if hasattr(nest, "_asdict"):
        nest = nest._asdict()
    if isinstance(nest, Mapping):
        parts = {str(name): _named(part) for name, part in nest.items()}
        return {name: part for name, part in parts.items() if not _is_empty(part)}
    if isinstance(nest, tuple | list):
        return tuple(map(_named, nest))
    return nest


def _is_empty(nest: Any) -> bool:
    return isinstance(nest, Mapping | tuple) and not nest


def _stack(nests: Sequence[Any]) -> Any:
    return tree.map_structure(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *nests)


def _as_arrays(nest: Any) -> Any:
    """Returns a nest of arrays; a list is an array of time, a tuple a nest."""
    if isinstance(nest, Mapping):
        return {name: _as_arrays(part) for name, part in nest.items()}
    if isinstance(nest, tuple):
        parts = map(_as_arrays, nest)
        return type(nest)(*parts) if hasattr(nest, "_fields") else tuple(parts)
    return np.asarray(nest)


def conform(episode: Episode, spec: specs.EnvironmentSpec) -> Episode:
    """Returns an episode in the structures and dtypes of a spec; 64-bit numbers may become 32-bit ones.

    Rewards that are whole numbers become floats if the spec has these.

    Raises:
        SpecError: A leaf has another name, shape or kind of dtype, or a number that is not finite or beyond
            `constraints.LARGEST`, an action or a discrete observation is out of bounds, or the episode has no
            steps.
    """
    num_steps = episode.num_steps if np.ndim(episode.reward) == 1 else 0
    if num_steps == 0:
        raise specs.SpecError(
            f"`reward` of an episode must be [T], one for each of its steps, got {np.shape(episode.reward)}."
        )
    return episode._replace(
        observation=_cast("observation", episode.observation, spec.observations, num_steps + 1),
        action=_cast("action", episode.action, spec.actions, num_steps),
        reward=_cast("reward", _as_floats(episode.reward, spec.rewards), spec.rewards, num_steps),
    )


def _as_floats(reward: np.ndarray, spec: types.NestedSpec) -> np.ndarray:
    is_whole = np.asarray(reward).dtype.kind in "iub"
    wants_floats = isinstance(spec, specs.Array) and np.dtype(spec.dtype).kind == "f"
    return np.asarray(reward, spec.dtype) if is_whole and wants_floats else reward


def _cast(name: str, nest: Any, spec: types.NestedSpec, length: int) -> Any:
    leaves = []
    for leaf_name, leaf, value in pairs(name, spec, nest):
        leaves.append(cast_leaf(leaf_name, value, leaf, length))
        _check_numbers(leaf_name, leaves[-1], leaf, is_action=name == "action")
    return tree.unflatten_as(spec, leaves)


def _check_numbers(name: str, array: np.ndarray, spec: specs.Array, is_action: bool) -> None:
    """Checks the numbers of a leaf over time, as adders do when agents play.

    Actions must be within their bounds. So must discrete observations, which a network makes one-hot; other
    observations may exceed them.

    Raises:
        SpecError: One is not finite, too large, or out of bounds.
    """
    if array.dtype.kind == "f" and not (is_fine := specs.is_moderate(array)).all():
        step, value = _first(array, ~is_fine)
        raise specs.SpecError(
            f"`{name}` of an episode must be finite and within ±{constraints.LARGEST:g}, got {value} at step "
            f"{step}, counted from 0. Correct the episode, or leave it out."
        )
    is_bounded = is_action or isinstance(spec, specs.DiscreteArray)
    if not is_bounded or not isinstance(spec, specs.BoundedArray) or array.dtype.kind not in "iuf":
        return
    if (is_out := specs.is_out_of_bounds(array, spec)).any():
        step, value = _first(array, is_out)
        place = np.argwhere(is_out)[0][1:]
        way_out = "Correct the episode, or leave it out."
        if is_action:
            way_out = (
                "Actions must be as the agent of training chooses them: scale the environment's own to these "
                "bounds, and clip those that exceed them."
            )
        bounds = ", ".join(f"{bound[tuple(place)]:g}" for bound in specs.bounds(spec))
        raise specs.SpecError(
            f"`{name}` of an episode must be in [{bounds}], the bounds of its spec, got {value} at step "
            f"{step}, counted from 0. {way_out}"
        )


def _first(array: np.ndarray, is_wrong: np.ndarray) -> tuple[int, Any]:
    """Returns the step and the value of the first wrong number."""
    index = tuple(np.argwhere(is_wrong)[0])
    return int(index[0]), array[index]


@contextlib.contextmanager
def named(index: int, path: str | os.PathLike[str] | None = None) -> Iterator[None]:
    """Adds the folder, if there is one, and the index of an episode to errors in it.

    Raises:
        SpecError: Replaces a ValueError.
    """
    try:
        yield
    except ValueError as error:
        place = f"{os.fspath(path)}, episode" if path is not None else "Episode"
        raise specs.SpecError(f"{place} {index}: {error}") from error


def cast_leaf(name: str, value: Any, spec: specs.Array, length: int) -> np.ndarray:
    """Returns a leaf over time in the dtype of its spec; 64-bit numbers may become 32-bit ones.

    Raises:
        SpecError: Its shape is not [length, ...], its dtype of another kind, or an integer does not fit.
    """
    array, dtype = np.asarray(value), np.dtype(spec.dtype)
    cast = array
    if array.dtype != dtype and array.dtype.kind in (dtype.kind, *("iu" if dtype.kind in "iu" else ())):
        with np.errstate(over="ignore"):  # to infinity
            cast = array.astype(dtype)
        if dtype.kind in "iu" and not np.array_equal(cast, array):
            cast = array
    if cast.dtype != dtype or cast.shape != (length, *spec.shape):
        raise specs.SpecError(
            f"`{name}` of an episode must be {dtype} of shape {(length, *spec.shape)}, got {array.dtype} of "
            f"shape {array.shape}. Convert the data, or use the environment, with its wrappers, that the "
            "data is of."
        )
    return cast


def pairs(name: str, spec: types.NestedSpec, nest: Any) -> Iterator[tuple[str, specs.Array, Any]]:
    """Yields the name, the spec and the value of each leaf, in the order in which `tree` flattens the spec.

    Raises:
        SpecError: The structures differ.
    """
    if isinstance(spec, Mapping) and isinstance(nest, Mapping) and sorted(nest) == sorted(spec):
        for field in sorted(spec):
            yield from pairs(f"{name}[{field!r}]", spec[field], nest[field])
    elif isinstance(spec, tuple | list) and isinstance(nest, tuple | list) and len(nest) == len(spec):
        for index, (part, value) in enumerate(zip(spec, nest, strict=True)):
            yield from pairs(f"{name}[{index}]", part, value)
    elif isinstance(spec, specs.Array) and not isinstance(nest, Mapping | tuple | list):
        yield name, spec, nest
    else:
        raise specs.SpecError(
            f"`{name}` must be {_describe(spec)}, got {_describe(nest)}. The data is of another environment, "
            "or of one in other wrappers: convert the episodes in Python, see `datasets.play`."
        )


def _describe(nest: Any) -> str:
    if isinstance(nest, Mapping):
        return f"a dict of {sorted(nest)}"
    return f"{len(nest)} parts" if isinstance(nest, tuple | list) else "an array"
