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

from minerva_acme import specs, types


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

_CONVERT = (
    "Correct the episode or leave it out. Data of another environment, or of other wrappers, is converted in "
    "Python: see `datasets.play`."
)
_SCALE = (
    "Actions must be as the agent of training chooses them: scale the environment's own to these bounds, "
    "clip those that exceed them, or leave the episode out."
)
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

    Rewards that are whole numbers become floats if the spec has these. Actions must be within their bounds,
    and so must discrete observations, which a network makes one-hot; others may exceed them.

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

    def converted(name: str, of: types.NestedSpec, length: int, **settings: Any) -> types.NestedArray:
        return checker(of, name, **settings).conform(getattr(episode, name), (length,))

    return episode._replace(
        observation=converted("observation", spec.observations, num_steps + 1, bounded=()),
        action=converted("action", spec.actions, num_steps, way_out=_SCALE),
        reward=converted("reward", spec.rewards, num_steps, bounded=(), converts="numbers"),
    )


def checker(spec: types.NestedSpec, name: str, **settings: Any) -> specs.Checker:
    """Makes the checker of a recorded nest, whose leaves have time as their first axis."""
    return specs.Checker(spec, name, axes=("step",), **{"converts": "digits", "way_out": _CONVERT} | settings)


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
