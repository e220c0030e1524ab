"""Recorded episodes, played through an adder as if they were happening now."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import dm_env
import numpy as np
import tree

from minerva_acme import constraints, core, specs, types
from minerva_acme.actors import feed_forward
from minerva_acme.datasets import conversion
from minerva_acme.datasets import episodes as episode_forms
from minerva_acme.distributions import squashed

_logger = logging.getLogger(__name__)

UNKNOWN_LOG_PROB = np.float32(constraints.LARGEST)
"""The log-probability of an action that nothing is known of. Its importance ratio is exp(-1e15) = 0, so that
the trace of `losses.retrace_targets` is cut at its step."""

# What an adder of the builder itself records.
_OF_THE_ADDER = ("running_return",)


class Played(NamedTuple):
    """What was played."""

    num_episodes: int
    num_steps: int
    num_without_log_prob: int  # steps whose log-probability is needed and was not recorded

    def __str__(self) -> str:
        text = f"{self.num_episodes:,} episodes, {self.num_steps:,} steps"
        if self.num_without_log_prob:
            share = self.num_without_log_prob / self.num_steps
            text += f", {share:.1%} of them without a log-probability, where Retrace cuts its traces"
        return text


def play(
    recorded: Iterable[episode_forms.Recorded],
    adder: core.Adder,
    *,
    spec: specs.EnvironmentSpec,
    extras_spec: types.NestedSpec = (),
    recorded_spec: specs.EnvironmentSpec | None = None,
) -> Played:
    """Plays episodes through an adder, which writes what it would have written in the environment.

    The extras that the adder takes are those that were recorded. Of a step without a `log_prob`, that is
    `UNKNOWN_LOG_PROB`; without a `raw_action`, that is the executed action. A `running_return` is left to the
    adder. An episode that was cut off ends as at a time limit.

    A `raw_action` is taken to be executed as MPO does: clipped to the bounds. If the agent that was recorded
    squashed it, as V-MPO does, the executed action replaces it, and `log_prob` becomes the density of that.
    Other steps whose raw action was not executed are played as if nothing had been recorded with them.

    Recorded data of the bare environment is converted as the training wrappers do: actions are scaled from
    the data's bounds to the environment's, and a discrete observation becomes a one-hot vector. To play data
    that differs in other ways, convert the episodes on the way, in a generator, and give `recorded_spec`.

    Args:
        recorded: The episodes, such as `read` returns, or in any form that `as_episode` takes.
        adder: The adder, such as the builder's `make_adder` returns. It is left open, with all items sent.
        spec: The specs of the environment, as the agent sees it.
        extras_spec: The specs of the extras that the adder takes, such as the builder's `extras_spec(spec)`.
        recorded_spec: The specs of the data, by default the `spec` of `recorded`, which a `Recording` has.
            They are checked first, and data that `check_spec` allows is converted. A list or a generator has
            no `spec`: without `recorded_spec`, its episodes must be as the environment gives them, and their
            actions are not scaled.

    Raises:
        SpecError: The data does not match the spec, lacks extras, or holds numbers that are not finite or
            actions out of bounds; the message says where.
    """
    found = getattr(recorded, "spec", spec) if recorded_spec is None else recorded_spec
    convert = conversion.converter(found, spec)
    num_episodes = num_steps = num_unknown = 0
    for each in recorded:
        with episode_forms.named(num_episodes, getattr(recorded, "path", None)):
            episode = episode_forms.conform(convert(episode_forms.as_episode(each)), spec)
            extras, num_without = _extras(episode, extras_spec, spec.actions)
            _play(episode, extras, adder, spec)
        num_episodes += 1
        num_steps += episode.num_steps
        num_unknown += num_without
    adder.flush()
    played = Played(num_episodes, num_steps, num_unknown)
    _logger.info("played %s", played)
    return played


def _play(
    episode: episode_forms.Episode,
    extras: Iterable[types.NestedArray],
    adder: core.Adder,
    spec: specs.EnvironmentSpec,
) -> None:
    """Plays an episode.

    Raises:
        SpecError: The adder refuses a step.
    """
    timesteps = _timesteps(episode, spec.discounts)
    adder.add_first(next(timesteps))
    actions = feed_forward.rows(episode.action, episode.num_steps)
    for step, (action, timestep, extra) in enumerate(zip(actions, timesteps, extras, strict=True)):
        try:
            adder.add(action, timestep, extra)
        except ValueError as error:
            raise specs.SpecError(f"at step {step}, counted from 0, {error}") from error


def _timesteps(episode: episode_forms.Episode, discount_spec: types.NestedSpec) -> Iterator[dm_env.TimeStep]:
    observations = iter(feed_forward.rows(episode.observation, episode.num_steps + 1))
    yield dm_env.restart(next(observations))
    last = episode.num_steps - 1
    discounts = np.asarray(episode.discount, getattr(discount_spec, "dtype", np.float32))
    signals = zip(episode.reward, discounts, observations, strict=True)
    for t, (reward, discount, observation) in enumerate(signals):
        kind = dm_env.StepType.LAST if t == last else dm_env.StepType.MID
        yield dm_env.TimeStep(kind, reward, discount, observation)


def _extras(
    episode: episode_forms.Episode, spec: types.NestedSpec, action_spec: types.NestedSpec
) -> tuple[list[types.NestedArray], int]:
    """Returns the extras of each step, and the number of steps whose log-probability is not known.

    Raises:
        SpecError: Extras are missing, or differ from their spec.
    """
    columns: list[np.ndarray] = []
    places: dict[Any, int] = {}  # in them, by the last part of a field's path
    for path, leaf in tree.flatten_with_path(spec):
        name = specs.leaf_name("extras", path)
        value = _find(episode.extras, path)
        if value is None and path[-1] == "log_prob":
            value = np.full(episode.num_steps, UNKNOWN_LOG_PROB)
        elif value is None and path[-1] == "raw_action":
            value = np.asarray(episode.action)
        elif value is None and path[-1] in _OF_THE_ADDER:
            value = np.zeros((episode.num_steps, *leaf.shape), leaf.dtype)
        elif value is None:
            raise specs.SpecError(
                f"`{name}` must be recorded with each step, got {sorted(episode.extras) or 'nothing'}. The "
                "agent needs data that was recorded by itself."
            )
        places[path[-1]] = len(columns)
        checker = episode_forms.checker(leaf, name, bounded=(), largest=None)
        columns.append(checker.conform(value, (episode.num_steps,)))
    density, raw = places.get("log_prob"), places.get("raw_action")
    if density is not None and raw is not None and isinstance(action_spec, specs.BoundedArray):
        columns[density], columns[raw] = _as_clipped(
            columns[density], columns[raw], np.asarray(episode.action), action_spec
        )
    num_unknown = 0 if density is None else int(np.sum(columns[density] == UNKNOWN_LOG_PROB))
    return feed_forward.rows(tree.unflatten_as(spec, columns), episode.num_steps), num_unknown


def _as_clipped(
    log_prob: np.ndarray, raw: np.ndarray, action: np.ndarray, spec: specs.BoundedArray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns densities [T] and raw actions [T, ...] for an agent that clips raw actions to the bounds.

    An action a = squash(u) of a raw action u with density p(u) is its own raw action, of the density
    p(u) / |da / du|.

    Args:
        log_prob: The recorded log-densities of the raw actions, [T], or `UNKNOWN_LOG_PROB`.
        raw: The recorded raw actions, [T, ...].
        action: The executed actions, [T, ...].
        spec: The spec of the actions.
    """
    axes = tuple(range(1, action.ndim))
    low, high = specs.bounds(spec)

    def is_executed(found: np.ndarray) -> np.ndarray:  # with a density that is a number
        return np.isclose(found, action, rtol=1e-5, atol=1e-6).all(axis=axes) & np.isfinite(log_prob)

    is_own = is_executed(np.clip(raw, low, high))
    if is_own.all():
        return log_prob, raw
    density = np.full_like(log_prob, UNKNOWN_LOG_PROB)
    if raw.dtype == np.float32 and raw.ndim == 2 and specs.is_bounded(spec):
        half_range = np.float32(0.5) * (high - low)
        is_squashed = is_executed(squashed.squash_array(raw, low, half_range, high))
        density = np.where(is_squashed, log_prob - squashed.log_det_array(raw, half_range), density)
    is_kept = is_own.reshape(-1, *[1] * len(axes))
    return np.where(is_own, log_prob, density), np.where(is_kept, raw, action.astype(raw.dtype))


def _find(extras: Mapping[str, Any], path: tuple[Any, ...]) -> Any:
    """Returns the leaf at a path, or None."""
    found: Any = extras
    for key in path:
        if isinstance(found, Mapping):
            found = found.get(key)
        elif isinstance(found, tuple | list) and isinstance(key, int) and key < len(found):
            found = found[key]
        else:
            return None
    return found
