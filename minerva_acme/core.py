"""The contracts that every agent is built from.

An `Actor` talks to the environment, an `Adder` writes what happened into replay, a `Learner`
consumes replay, a `VariableSource` (every learner is one) hands weights back to the actor. Each can
be replaced without touching the other three. The loop that ties them together is, in full:

    timestep = environment.reset()
    actor.observe_first(timestep)
    while not timestep.last():
        action = actor.select_action(timestep.observation)
        timestep = environment.step(action)
        actor.observe(action, next_timestep=timestep)
        actor.update()

The end of an episode is told by `timestep.last()`, whether to bootstrap by `timestep.discount`;
the two are never merged into one "done".

Threads. The calls of one object come one after the other, from whatever thread, with one exception:

    get_variables, poll_variables    from any threads at any time, also while a `step` of the learner runs or
                                     waits for data: they never wait for it, and give what the last
                                     completed step left

So a learner that waits for data can be in one thread, and the actor whose data it waits for in another.
Different objects may be used by different threads at once; what a loop shares with no one needs no lock.
A method says so where it waits, and for what.
"""

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import dm_env

from minerva_acme import types

State: TypeAlias = Any


class Closeable(abc.ABC):
    """What holds something that must be released: a context manager that closes itself."""

    @abc.abstractmethod
    def close(self) -> None:
        """Releases what is held; closing twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


class Actor(abc.ABC):
    """Selects actions and observes what they lead to. Its methods are called by one thread at a time."""

    @abc.abstractmethod
    def select_action(self, observation: types.NestedArray) -> types.NestedArray:
        """Returns the action for one observation (no batch axis), conforming to the action spec."""

    @abc.abstractmethod
    def observe_first(self, timestep: dm_env.TimeStep) -> None:
        """Observes the first timestep of an episode."""

    @abc.abstractmethod
    def observe(self, action: types.NestedArray, next_timestep: dm_env.TimeStep) -> None:
        """Observes the action that `select_action` returned and the timestep that it led to."""

    @abc.abstractmethod
    def update(self, wait: bool = False) -> None:
        """Takes newer weights if there are any; with `wait`, returns only once it holds them.

        Within this call alone do weights change: never while an action is chosen. It waits for the answer of
        the variable source, which does not wait for a learner's step.
        """


class VectorActor(abc.ABC):
    """An actor in E environments at once; each has its episodes, and its calls, in an order of its own.

    Its methods are called by one thread at a time, for all environments.
    """

    @abc.abstractmethod
    def select_action(self, observations: Sequence[types.NestedArray]) -> list[types.NestedArray]:
        """Returns the E actions for the E newest observations, none with a batch axis.

        The action of an environment that only resets in this step is never observed.
        """

    @abc.abstractmethod
    def observe_first(self, index: int, timestep: dm_env.TimeStep) -> None:
        """Observes the first timestep of an episode in environment `index`."""

    @abc.abstractmethod
    def observe(self, index: int, action: types.NestedArray, next_timestep: dm_env.TimeStep) -> None:
        """Observes the action selected for environment `index` and the timestep that it led to."""

    @abc.abstractmethod
    def update(self, wait: bool = False) -> None:
        """Takes newer weights if there are any; with `wait`, returns only once it holds them.

        Within this call alone do weights change: never while an action is chosen. It waits for the answer of
        the variable source, which does not wait for a learner's step.
        """


class Adder(Closeable):
    """Turns a stream of timesteps into replay items. A context manager that closes itself.

    Calls come as `add_first (add)*` for each episode; the `add` whose timestep is LAST ends it. They come
    from one thread at a time; adders of other threads may write to the same tables at once. `add` and
    `flush` may wait for a table that takes no more items until some are sampled.

    What does not match its spec is refused by name, before anything of it is written: structure, dtype and
    shape, floats that are not finite as they are stored, or in float32 beyond `constraints.LARGEST`, and
    discounts outside the bounds of their spec, for one above 1 makes values grow without end and nothing else
    would tell. The bounds of observations, actions and rewards are not looked at: that would cost time at
    every step, and environments in the wild break theirs. `specs.check_conforms` and
    `wrappers.SpecCheckWrapper` check them all.
    """

    @abc.abstractmethod
    def add_first(self, timestep: dm_env.TimeStep) -> None:
        """Starts an episode.

        Raises:
            ValueError: the timestep is not FIRST, an episode is still open, or the observation does
                not match its spec.
        """

    @abc.abstractmethod
    def add(
        self,
        action: types.NestedArray,
        next_timestep: dm_env.TimeStep,
        extras: types.NestedArray = (),
    ) -> None:
        """Adds one transition.

        Args:
            action: the action that led to `next_timestep`, as the environment received it.
            next_timestep: what followed. If it is LAST the episode's remaining items are written.
            extras: what the policy recorded when it chose the action, conforming to the extras spec.

        Raises:
            ValueError: no episode is open, or a field does not match its spec, as the class says. Nothing
                is written then and the adder stays usable.
        """

    @property
    @abc.abstractmethod
    def num_inserted(self) -> int:
        """Items created since construction; runners pace learning by it."""

    @abc.abstractmethod
    def flush(self) -> None:
        """Returns once every created item can be sampled."""

    @abc.abstractmethod
    def reset(self) -> None:
        """Ends an open episode where it stands, as a time limit would, losing no transition."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends an open episode like `reset`, sends what is pending and releases the writer."""


class VersionedVariables(NamedTuple):
    """Variables and the version they belong to; versions of one source only grow."""

    version: int | None  # None: the source does not count versions
    values: list[types.NestedArray]


class RemoteVariableSource(Protocol):
    """What a transport offers to actors whose learner is in another process or on another machine.

    It is all that `actors.VariableClient` asks of a source, and every `VariableSource` has it.
    `minerva_acme.distributed` has one over Ray.
    """

    def poll_variables(
        self, names: Sequence[str], newer_than: int | None = None
    ) -> VersionedVariables | None:
        """Returns the variables with their version, or None where `newer_than` is still the newest.

        The values are those of one completed step of the learner, one nest of numpy arrays per name, and
        belong to the caller. They may be behind the learner. Versions should not fall; the client ignores
        those that do, as of a replica that lags behind. May be called by any thread.

        Raises:
            KeyError: a name is unknown.
            OSError: the source did not answer (`ConnectionError`, `TimeoutError`). It is raised within a
                bounded time, and says for how long it was waited and for whom. The next call tries anew.
        """


class VariableSource(abc.ABC):
    """Something that weights can be pulled from, by any threads at any time."""

    @abc.abstractmethod
    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        """Returns one nest of CPU numpy arrays per name, copied: later updates leave them as they are.

        All are of the same completed step of the learner, the last one. The call overlaps with anything and
        does not wait for a step that is under way, which may in turn wait for what the caller would write
        next. On an accelerator it waits for the work that was already handed over.

        Raises:
            KeyError: a name is unknown; the message lists the known ones.
        """

    def poll_variables(
        self, names: Sequence[str], newer_than: int | None = None
    ) -> VersionedVariables | None:
        """Returns the variables with their version, or None where `newer_than` is still the newest.

        As `get_variables`, from any thread; versions, where they are counted, never fall. A source that
        counts them overrides this, so that a client that polls often copies nothing in vain; this default
        always returns the variables.
        """
        del newer_than
        return VersionedVariables(version=None, values=self.get_variables(names))


class Worker(abc.ABC):
    """Something with a main loop of its own."""

    @abc.abstractmethod
    def run(self) -> None:
        """Runs until its work is done."""


class Saveable(abc.ABC):
    """Something whose state can be saved and restored, while none of its other methods runs.

    A state is made of dicts, lists, tuples, tensors, numbers, strings, booleans and None alone, so
    that a checkpoint can be loaded without executing any code stored in it.
    """

    @abc.abstractmethod
    def save(self) -> State:
        """Returns the whole state, copied: later changes leave it as it is."""

    @abc.abstractmethod
    def restore(self, state: State) -> None:
        """Restores a state that `save` returned; from here on both behave the same."""


def save_if_saveable(part: Any) -> State:
    """Returns the state of what may be `Saveable`, as environments may; None where there is no `save`."""
    return part.save() if hasattr(part, "save") else None


def restore_if_saved(part: Any, state: State) -> None:
    """Undoes `save_if_saveable`: nothing is restored of what had no state."""
    if state is not None:
        part.restore(state)


class Learner(VariableSource, Worker, Saveable):
    """Consumes replay and improves variables.

    `step`, `run`, `save` and `restore` are called by one thread at a time. Meanwhile others may call
    `get_variables` and `poll_variables`. `learners.ModuleLearner` does what that takes.
    """

    @abc.abstractmethod
    def step(self) -> None:
        """Performs one update, waiting for data if there is none yet.

        It waits for nobody who asks for variables, beyond the moment in which one copies them. If it raises,
        the step is not completed: variables stay those of the one before.
        """

    def run(self, num_steps: int | None = None) -> None:
        """Performs `num_steps` updates, or updates forever."""
        done = 0
        while num_steps is None or done < num_steps:
            self.step()
            done += 1
