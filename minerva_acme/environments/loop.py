"""Lets an actor play in an environment."""

import time
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import dm_env
import numpy as np
import tree

from minerva_acme import core, counting, loggers, types
from minerva_acme.observers.base import by_path

EpisodeResult: TypeAlias = dict[str, Any]
"""What became of an episode, as a row for a logger; `EnvironmentLoop` says what it holds."""

_FLOATS = (float, np.floating)
_PHASES = ("reset", "select_action", "environment_step", "observe", "update")


class Observer(Protocol):
    """Looks on and adds metrics of its own to the result of an episode."""

    def observe_first(self, environment: dm_env.Environment, timestep: dm_env.TimeStep) -> None:
        """Looks at the environment after its reset."""

    def observe(
        self, environment: dm_env.Environment, timestep: dm_env.TimeStep, action: types.NestedArray
    ) -> None:
        """Looks at the environment after a step, with the action that led there."""

    def get_metrics(self) -> dict[str, Any]:
        """Returns the metrics of the episode that has just ended."""


class EnvironmentLoop:
    """Plays, one environment step at a time.

    The result of an episode holds:

        episode_return     undiscounted sum of the rewards, in double precision; of a nest or an array of
                           rewards one sum each, `episode_return/<path>`
        episode_length     environment steps
        steps_per_second   over the time from its start to its end, whatever was done between the steps
        seconds/<phase>    spent in the episode on `reset`, `select_action`, `environment_step`, `observe`
                           (adding to replay included) and `update`
        <counts>           of the counter, `steps` and `episodes` of this loop among them
        <metrics>          of the observers

    An episode goes on from one call to the next. After an exception the next step begins a new
    episode; an adder must be `reset` before.
    """

    def __init__(
        self,
        *,
        environment: dm_env.Environment,
        actor: core.Actor,
        counter: counting.Counter | None = None,
        logger: loggers.Logger | None = None,
        observers: Sequence[Observer] = (),
        should_update: bool = True,
    ) -> None:
        """Takes over the parts; nothing is played yet.

        Args:
            environment: where to play; stays the caller's to close.
            actor: plays.
            counter: counts `steps` and `episodes`; None: one of its own.
            logger: receives each episode's result.
            observers: look on, after the actor.
            should_update: whether the actor takes newer weights after each step.
        """
        self._environment = environment
        self._actor = actor
        self._counter = counter if counter is not None else counting.Counter()
        self._logger = logger
        self._observers = tuple(observers)
        self._should_update = should_update
        self._clock = Clock()
        self._episode: Episode | None = None

    def step(self) -> EpisodeResult | None:
        """Makes one environment step, after a reset if no episode is open.

        Returns:
            The result of the episode if this step ended it, otherwise None.
        """
        # Taken out until the step is complete: an exception leaves no half-observed episode behind.
        episode, self._episode = self._episode or self._begin(), None
        clock = self._clock
        clock.start()
        action = self._actor.select_action(episode.timestep.observation)
        clock.lap("select_action")
        timestep = self._environment.step(action)
        clock.lap("environment_step")
        episode.add(timestep)
        self._actor.observe(action, next_timestep=timestep)
        for observer in self._observers:
            observer.observe(self._environment, timestep, action)
        clock.lap("observe")
        if self._should_update:
            self._actor.update()
            clock.lap("update")
        if timestep.last():
            return self._end(episode)
        self._counter.tick("steps")
        self._episode = episode
        return None

    def run_episode(self) -> EpisodeResult:
        """Plays the open episode, or a new one, to its end and returns its result."""
        while True:
            result = self.step()
            if result is not None:
                return result

    def run(self, num_episodes: int | None = None, num_steps: int | None = None) -> None:
        """Plays to the end of `num_episodes`, or for exactly `num_steps`, or for ever if neither is given.

        An episode that is open at the start is the first of the `num_episodes`; one that is open after
        `num_steps` goes on in the next call.

        Raises:
            ValueError: both are given, or a negative number.
        """
        check_budget(num_episodes, num_steps)
        episodes = steps = 0
        while episodes != num_episodes and steps != num_steps:
            episodes += self.step() is not None
            steps += 1

    def _begin(self) -> "Episode":
        episode = Episode(self._clock)
        with self._clock.phase("reset"):
            episode.timestep = self._environment.reset()
        with self._clock.phase("observe"):
            self._actor.observe_first(episode.timestep)
            for observer in self._observers:
                observer.observe_first(self._environment, episode.timestep)
        return episode

    def _end(self, episode: "Episode") -> EpisodeResult:
        result = episode.result() | self._counter.increment(steps=1, episodes=1)
        for observer in self._observers:
            result |= observer.get_metrics()
        if self._logger is not None:
            self._logger.write(result)
        return result


class Clock:
    """Adds up the seconds spent on each phase of playing."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(_PHASES, 0.0)
        self._phases = {name: _Phase(self.seconds, name) for name in _PHASES}
        self._started_at = 0.0

    def start(self) -> None:
        """Starts the watch for phases that follow each other, in a third of the time of `with` blocks."""
        self._started_at = time.perf_counter()

    def lap(self, name: str) -> None:
        """Ends a phase, and begins the next."""
        now = time.perf_counter()
        self.seconds[name] += now - self._started_at
        self._started_at = now

    def phase(self, name: str) -> "_Phase":
        """Times what is done in a `with` block, unless that fails; not within the same phase."""
        return self._phases[name]


class _Phase:
    # A class: the generators of contextlib took half the time that a loop itself needs for a step.

    def __init__(self, seconds: dict[str, float], name: str) -> None:
        self._seconds = seconds
        self._name = name
        self._started_at = 0.0

    def __enter__(self) -> None:
        self._started_at = time.perf_counter()

    def __exit__(self, exc_type: type[BaseException] | None, *details: object) -> None:
        if exc_type is None:
            self._seconds[self._name] += time.perf_counter() - self._started_at


class Episode:
    """The book of an episode in progress, for the loops."""

    timestep: dm_env.TimeStep

    def __init__(self, clock: Clock) -> None:
        """Begins the book. Args: clock: that of the loop, which goes on from episode to episode."""
        self._started_at = time.perf_counter()
        self._length = 0
        self._return: types.NestedArray = None
        self._clock = clock
        self._seconds_before = dict(clock.seconds)

    def add(self, timestep: dm_env.TimeStep) -> None:
        """Enters a step.

        Raises:
            ValueError: the episode began anew instead.
        """
        # A long sum in single precision loses digits.
        if isinstance(timestep.reward, _FLOATS):
            reward = np.float64(timestep.reward)
            self._return = reward if self._length == 0 else self._return + reward
        else:
            if timestep.reward is None:  # as at FIRST alone
                raise ValueError(
                    "`step` of the environment must return MID or LAST in an open episode, with a reward, "
                    f"got {timestep.step_type.name} without one after {self._length} steps. End the episode "
                    "with LAST (`dm_env.termination` or `truncation`); the `step` after that begins the next."
                )
            reward = tree.map_structure(np.float64, timestep.reward)
            self._return = reward if self._length == 0 else tree.map_structure(np.add, self._return, reward)
        self._length += 1
        self.timestep = timestep

    def result(self) -> EpisodeResult:
        """Returns what became of the episode, as `EnvironmentLoop` says, without counts and metrics."""
        seconds = time.perf_counter() - self._started_at
        numbers = tree.map_structure(lambda leaf: leaf.tolist(), self._return)  # each element a leaf
        return {
            **by_path("episode_return", numbers, float),
            "episode_length": self._length,
            "steps_per_second": self._length / seconds,
            **{
                f"seconds/{phase}": spent - self._seconds_before[phase]
                for phase, spent in self._clock.seconds.items()
            },
        }


def check_budget(num_episodes: int | None, num_steps: int | None) -> None:
    """Checks how long a loop is to run.

    Raises:
        ValueError: both are given, or a negative number.
    """
    if num_episodes is not None and num_steps is not None:
        raise ValueError(
            "Only one of `num_episodes` and `num_steps` may be given, got "
            f"{num_episodes} and {num_steps}. Call run once for each."
        )
    for name, number in (("num_episodes", num_episodes), ("num_steps", num_steps)):
        if number is not None and number < 0:
            raise ValueError(f"`{name}` must be >= 0, got {number}.")
