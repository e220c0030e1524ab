"""Runs an actor in an environment."""

import abc
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import dm_env
import numpy as np
import tree

from minerva_acme import core, counting, loggers, specs, types
from minerva_acme.observers.base import by_path
from minerva_acme.wrappers import calls, leafwise, reward_sum

EpisodeResult: TypeAlias = dict[str, Any]
"""The result of an episode, as a row for a logger; see `EnvironmentLoop` for its entries."""

_NAMES = ("episode_length", "steps_per_second", "steps", "episodes", "environment")
_GROUPS = ("episode_return", "seconds/")

EnvironmentT = TypeVar("EnvironmentT")
ActorT = TypeVar("ActorT")

_FLOATS = (float, np.floating)
_PHASES = ("reset", "select_action", "environment_step", "observe", "update")

_clocks: "weakref.WeakSet[Clock]" = weakref.WeakSet()


class Observer(Protocol):
    """Watches episodes and adds metrics of its own to their results."""

    def observe_first(self, environment: dm_env.Environment, timestep: dm_env.TimeStep) -> None:
        """Observes the environment after its reset."""

    def observe(
        self, environment: dm_env.Environment, timestep: dm_env.TimeStep, action: types.NestedArray
    ) -> None:
        """Observes the environment after a step, with the action that led there."""

    def get_metrics(self) -> dict[str, Any]:
        """Returns the metrics of the episode that has just ended."""


class Loop(abc.ABC, Generic[EnvironmentT, ActorT]):
    """The common base of `EnvironmentLoop` and `VectorEnvironmentLoop`.

    Open episodes continue in the next call. After an exception the next step begins a new episode in every
    environment; `reset` the adders first.
    """

    def __init__(
        self,
        environment: EnvironmentT,
        actor: ActorT,
        counter: counting.Counter | None = None,
        logger: loggers.Logger | None = None,
        *,
        observers: Sequence[Observer] = (),
        should_update: bool = True,
    ) -> None:
        """Makes the loop, without playing yet.

        The first four arguments may be positional, in Acme's order.

        Args:
            environment: The environment to play in; the caller closes it.
            actor: The actor that plays.
            counter: Counts `steps` and `episodes` of all environments together; None makes a new one.
            logger: Receives each episode's result.
            observers: Observers, called after the actor; each environment of a vector gets deep copies.
            should_update: Whether the actor takes newer weights after each step.
        """
        self._environment = environment
        self._actor = actor
        self._counter = counter if counter is not None else counting.Counter()
        self._logger = logger
        self._observers = tuple(observers)
        self._should_update = should_update
        self._clock = Clock()
        self._num_steps = 0  # made by this loop, in all environments together
        self._num_episodes = 0  # that have ended

    def step(self) -> list[EpisodeResult]:
        """Makes one step in every environment, after a reset if no episode is open.

        Returns:
            The results of the episodes that this step ended, in the order of the environments.

        Raises:
            EnvironmentExit: An environment called `sys.exit`.
            SpecError: An environment did not return timesteps.
        """
        try:
            return self._step()
        except SystemExit as error:
            if (method := self._clock.calling) is None:  # it was not an environment that exited
                raise
            raise calls.exit_error(self._environment, method, error) from error

    def run(self, num_episodes: int | None = None, num_steps: int | None = None) -> None:
        """Plays until `num_episodes` have ended, or `num_steps` are made, or forever if neither is given.

        Both count all environments together, in this call; an episode that is open at the start is one of the
        `num_episodes`. Since E environments step together, up to E - 1 more may be played; in a batch, which
        tells only from time to time what has ended, more. Open episodes continue in the next call.

        Raises:
            ValueError: Both are given, or a negative number.
        """
        check_budget(num_episodes, num_steps)
        episodes_before, steps_before = self._num_episodes, self._num_steps
        while (num_episodes is None or self._num_episodes - episodes_before < num_episodes) and (
            num_steps is None or self._num_steps - steps_before < num_steps
        ):
            self.step()

    @abc.abstractmethod
    def _step(self) -> list[EpisodeResult]:
        """Makes the step; the clock's `calling` is set exactly while an environment is called."""

    @abc.abstractmethod
    def reset(self) -> None:
        """Abandons open episodes, without results: the next step begins new ones. `reset` the adders too."""

    def _finish(
        self, result: EpisodeResult, observers: Sequence[Observer], num_episodes: int = 1
    ) -> EpisodeResult:
        """Counts episodes, adds the observers' metrics to their result, and logs it.

        Raises:
            ValueError: Two of them have the same name, or one has a name of the loop.
        """
        self._num_episodes += num_episodes
        for observer in observers:
            metrics = observer.get_metrics()
            if taken := [name for name in metrics if name in result]:
                raise ValueError(
                    f"An observer's metrics must have names of their own, got `{taken[0]}` of "
                    f"{type(observer).__name__} twice. Put another name before it, such as my/{taken[0]}."
                )
            result |= metrics
        if self._logger is not None:
            self._logger.write(result)
        return result


class EnvironmentLoop(Loop[dm_env.Environment, core.Actor]):
    """A loop that plays one environment step at a time.

    The result of an episode holds:

        episode_return     undiscounted sum of the rewards, in double precision; for a nest or an array of
                           rewards the sum over all of them, and one sum each, `episode_return/<path>`
        episode_length     environment steps
        steps_per_second   from the episode's start to its end, including the time between steps
        seconds/<phase>    time spent in the episode on `reset`, `select_action`, `environment_step`,
                           `observe` (including adding to replay) and `update`
        <counts>           the counter's counts, including `steps` and `episodes` of this loop
        <metrics>          the observers' metrics
    """

    _episode: "Episode | None" = None

    def _step(self) -> list[EpisodeResult]:
        # Taken out until the step is complete: an exception leaves no half-observed episode behind.
        episode, self._episode = self._episode or self._begin(), None
        clock = self._clock
        clock.start()
        action = self._actor.select_action(episode.timestep.observation)
        clock.lap("select_action", then="step")
        timestep = self._environment.step(leafwise.copy(action))
        if not isinstance(timestep, dm_env.TimeStep):
            calls.check(timestep, self._environment, "step")
        clock.lap("environment_step")
        episode.add(timestep)
        episode.timestep = timestep
        self._actor.observe(action, next_timestep=timestep)
        # Immediately: even if something fails from here on, every observed step is counted.
        self._num_steps += 1
        is_last = timestep.last()
        if is_last:
            counts = self._counter.increment(steps=1, episodes=1)
        else:
            self._counter.tick("steps")
        for observer in self._observers:
            observer.observe(self._environment, timestep, action)
        clock.lap("observe")
        if self._should_update:
            self._actor.update()
            clock.lap("update")
        if is_last:
            return [self._finish(episode.result() | counts, self._observers)]
        self._episode = episode
        return []

    def reset(self) -> None:
        self._episode = None

    def run_episode(self) -> EpisodeResult:
        """Plays the open episode, or a new one, to its end and returns its result."""
        while not (results := self.step()):
            pass
        return results[0]

    def _begin(self) -> "Episode":
        episode = Episode(self._clock)
        self._clock.start("reset")
        episode.timestep = self._environment.reset()
        self._clock.lap("reset")
        calls.check(episode.timestep, self._environment, "reset")
        self._actor.observe_first(episode.timestep)
        for observer in self._observers:
            observer.observe_first(self._environment, episode.timestep)
        self._clock.lap("observe")
        return episode


class Clock:
    """Adds up the seconds spent on each phase of playing."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(_PHASES, 0.0)
        self.started_at = 0.0
        self.calling: str | None = None
        """The environment's method that is called in this phase, or None."""
        _clocks.add(self)

    def start(self, calling: str | None = None) -> None:
        """Begins the first of several consecutive phases."""
        self.started_at = time.perf_counter()
        self.calling = calling

    def lap(self, name: str, then: str | None = None) -> None:
        """Ends a phase and begins the next; `then` is the environment's method that is called in it."""
        now = time.perf_counter()
        self.seconds[name] += now - self.started_at
        self.started_at = now
        self.calling = then

    def since(self, before: Mapping[str, float]) -> dict[str, float]:
        """Returns the `seconds/<phase>` of a result that began when `seconds` were those."""
        return {f"seconds/{phase}": spent - before[phase] for phase, spent in self.seconds.items()}


class OpenCall(NamedTuple):
    """A call of an environment that has not returned yet."""

    method: str  # "step" or "reset"
    started_at: float  # by time.perf_counter


def open_calls() -> Iterator[OpenCall]:
    """Yields the calls that the loops of this process wait for, in any thread."""
    for clock in list(_clocks):
        if (method := clock.calling) is not None:
            yield OpenCall(method, clock.started_at)


class Episode:
    """An episode in progress: its return, its length and the seconds spent on its phases."""

    timestep: dm_env.TimeStep

    def __init__(self, clock: Clock) -> None:
        """Begins now. Args: clock: The loop's clock, which adds up the seconds of all its episodes."""
        self._clock = clock
        self._seconds_before = dict(clock.seconds)
        self._started_at = time.perf_counter()
        self._length = 0
        self._return: types.NestedArray = None

    def add(self, timestep: dm_env.TimeStep) -> None:
        """Adds a step.

        Raises:
            SpecError: The timestep has no reward, as at the beginning of a new episode.
        """
        # A long sum in single precision loses digits.
        if isinstance(timestep.reward, _FLOATS):  # the usual case; `tree` takes ten times as long
            reward = np.float64(timestep.reward)
            self._return = reward if self._length == 0 else self._return + reward
        else:
            if timestep.reward is None:  # only FIRST may have none
                raise specs.SpecError(
                    "`step` of the environment must return MID or LAST in an open episode, with a reward, "
                    f"got {timestep.step_type.name} without one after {self._length} steps. End the episode "
                    "with LAST (`dm_env.termination` or `truncation`); the `step` after that begins the next."
                )
            reward = tree.map_structure(np.float64, timestep.reward)
            self._return = reward if self._length == 0 else reward_sum.add(self._return, reward)
        self._length += 1

    def result(self) -> EpisodeResult:
        """Returns this episode's own part of an `EnvironmentLoop`'s result."""
        seconds = time.perf_counter() - self._started_at
        numbers = tree.map_structure(lambda leaf: leaf.tolist(), self._return)  # each a leaf
        returns = by_path("episode_return", numbers, float)
        return {
            "episode_return": sum(returns.values()),
            **returns,
            "episode_length": self._length,
            "steps_per_second": self._length / seconds,
            **self._clock.since(self._seconds_before),
        }


def is_of_loops(name: str) -> bool:
    """Returns whether an entry of a result is the loop's own, and not an observer's metric."""
    return name in _NAMES or name.startswith(_GROUPS)


def check_budget(num_episodes: int | None, num_steps: int | None) -> None:
    """Checks the arguments of `run`.

    Raises:
        ValueError: Both are given, or a negative number.
    """
    if num_episodes is not None and num_steps is not None:
        raise ValueError(
            "Only one of `num_episodes` and `num_steps` may be given, got "
            f"{num_episodes} and {num_steps}. Call run once for each."
        )
    for name, number in (("num_episodes", num_episodes), ("num_steps", num_steps)):
        if number is not None and number < 0:
            raise ValueError(f"`{name}` must be >= 0, got {number}.")
