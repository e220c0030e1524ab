"""The interfaces that every agent is built from.

An `Actor` interacts with the environment, an `Adder` writes the experience to replay, a `Learner`
consumes replay, and a `VariableSource` (every learner is one) gives weights back to the actor. Each can
be replaced without changing the other three. The whole loop that connects them is:

    timestep = environment.reset()
    actor.observe_first(timestep)
    while not timestep.last():
        action = actor.select_action(timestep.observation)
        timestep = environment.step(action)
        actor.observe(action, next_timestep=timestep)
        actor.update()

`timestep.last()` marks the end of an episode, and `timestep.discount` says whether to bootstrap.
The two are never merged into one "done" flag.

Threads. An object's methods are called one at a time, from any thread, with one exception:

    get_variables, poll_variables    may be called from any thread at any time, even while the learner's
                                     `step` runs or waits for data. They return the variables after a
                                     completed step, and never wait for data.

So a learner can wait for data in one thread while the actor that produces the data runs in another.
Different threads may use different objects at once; an object used by only one loop needs no lock.
The documentation of a method says if it waits, and for what.
"""

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import dm_env

from minerva_acme import types

State: TypeAlias = Any


class Closeable(abc.ABC):
    """An object that holds a resource. As a context manager, it closes itself."""

    @abc.abstractmethod
    def close(self) -> None:
        """Releases the resource. It may be called more than once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


class Actor(abc.ABC):
    """Selects actions and observes their results. Its methods are called by one thread at a time."""

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

        Weights change only within this call, never while an action is chosen. It waits for the answer of the
        variable source, which does not wait for a learner's step.
        """


class VectorActor(abc.ABC):
    """An actor for E environments at once, each with its own episodes and its own sequence of calls.

    Its methods are called by one thread at a time, for all environments.
    """

    @abc.abstractmethod
    def select_action(self, observations: Sequence[types.NestedArray]) -> list[types.NestedArray]:
        """Returns the E actions for the E newest observations, none with a batch axis.

        The action of an environment that resets in this step is ignored, and never observed.
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

        Weights change only within this call, never while an action is chosen. It waits for the answer of the
        variable source, which does not wait for a learner's step.
        """


class BatchedActor(abc.ABC):
    """An actor for a batched environment: all arguments are tensors of B environments, on its device.

    Its methods are called by one thread at a time.
    """

    @abc.abstractmethod
    def select_action(self, observations: types.NestedTensor) -> types.NestedTensor:
        """Returns the actions [B, ...] for the newest observations [B, ...].

        The action of an environment that resets in this step is ignored.
        """

    @abc.abstractmethod
    def observe_first(self, timestep: types.BatchedTimeStep) -> None:
        """Observes the first timestep of an episode in every environment."""

    @abc.abstractmethod
    def observe(self, actions: types.NestedTensor, next_timestep: types.BatchedTimeStep) -> None:
        """Observes the actions that `select_action` returned and the timestep that they led to."""

    @abc.abstractmethod
    def update(self, wait: bool = False) -> None:
        """Takes newer weights if there are any, as `VectorActor.update` does."""


class BatchedAdder(Closeable):
    """Turns the timesteps of a batched environment into replay items, without a look at their numbers.

    The calls are `add_first (add)* (reset add_first (add)*)*`: the environments begin later episodes by
    themselves.
    """

    @abc.abstractmethod
    def add_first(self, timestep: types.BatchedTimeStep) -> None:
        """Starts an episode in every environment.

        Raises:
            ValueError: Episodes are still open.
        """

    @abc.abstractmethod
    def add(
        self,
        actions: types.NestedTensor,
        next_timestep: types.BatchedTimeStep,
        extras: types.NestedTensor = (),
    ) -> None:
        """Adds one step of every environment.

        Args:
            actions: The actions that led to `next_timestep`, [B, ...].
            next_timestep: The timestep that followed.
            extras: The data that the policy recorded with the actions, [B, ...].

        Raises:
            ValueError: No episode is open, or the tensors have another structure.
            ReplayError: A tensor has another shape, dtype or device than its spec. Nothing is written.
        """

    @property
    @abc.abstractmethod
    def num_inserted(self) -> int:
        """The number of items that can be sampled, since construction; see `replay.Ring`."""

    def flush(self) -> None:
        """Does nothing: steps are written at once. An adder that keeps some back overrides it."""

    @abc.abstractmethod
    def reset(self) -> None:
        """Ends open episodes after their latest step, as a time limit would. No step is lost."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends open episodes like `reset`, and releases the writer."""


class Adder(Closeable):
    """Turns a stream of timesteps into replay items. As a context manager, it closes itself.

    The calls for each episode are `add_first (add)*`; the `add` with a LAST timestep ends the episode. They
    come from one thread at a time, but adders in other threads may write to the same tables. `add` and
    `flush` may wait for a table that takes no more items until some are sampled.

    Data that does not match its spec is rejected before any of it is written, with an error that names the
    field: a wrong structure, dtype or shape; floats that are not finite as stored, or beyond
    `constraints.LARGEST` in float32; and discounts outside the bounds of their spec, since a discount above 1
    makes values grow without limit, which no other check would find. The bounds of observations, actions and
    rewards are not checked: that would take time at every step, and many environments violate theirs.
    `specs.check_conforms` and `wrappers.SpecCheckWrapper` check all bounds.
    """

    @abc.abstractmethod
    def add_first(self, timestep: dm_env.TimeStep) -> None:
        """Starts an episode.

        Raises:
            ValueError: The timestep is not FIRST, an episode is still open, or the observation does
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
            action: The action that led to `next_timestep`, as the environment received it.
            next_timestep: The timestep that followed. LAST also writes the episode's remaining items.
            extras: The data that the policy recorded with the action, conforming to the extras spec.

        Raises:
            ValueError: No episode is open, or a field does not match its spec (see the class). Nothing
                is written then, and the adder stays usable.
        """

    @property
    @abc.abstractmethod
    def num_inserted(self) -> int:
        """The number of items created since construction. Runners use it to pace learning."""

    @abc.abstractmethod
    def flush(self) -> None:
        """Returns once every created item can be sampled."""

    @abc.abstractmethod
    def reset(self) -> None:
        """Ends an open episode after its latest step, as a time limit would. No transition is lost."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends an open episode like `reset`, sends pending items and releases the writer."""


class VersionedVariables(NamedTuple):
    """Variables and their version. The versions of one source only increase."""

    version: int | None  # None if the source does not count versions
    values: list[types.NestedArray]


class RemoteVariableSource(Protocol):
    """A source of variables for actors whose learner is in another process or on another machine.

    `actors.VariableClient` needs nothing else from a source, and every `VariableSource` conforms to it.
    `minerva_acme.distributed` has an implementation over Ray.
    """

    def poll_variables(
        self, names: Sequence[str], newer_than: int | None = None
    ) -> VersionedVariables | None:
        """Returns the variables with their version, or None if `newer_than` is still the newest.

        All values come from one completed step of the learner, as one nest of numpy arrays per name, and
        belong to the caller. They may be older than the learner's newest. Versions should not decrease; the
        client ignores older ones, for example from a replica that lags behind. May be called by any thread.

        Raises:
            KeyError: A name is unknown.
            OSError: The source did not answer (`ConnectionError`, `TimeoutError`). The error comes within a
                bounded time and says which source did not answer and for how long. The next call tries again.
        """


class VariableSource(abc.ABC):
    """A source from which any thread can get weights at any time."""

    @abc.abstractmethod
    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        """Returns one nest of CPU numpy arrays per name. They are copies: later updates do not change them.

        All come from one completed step of the learner. The call may overlap with any other. It may wait
        until the computation of a running step ends, but not while the step waits for data, which the caller
        may be about to write. On an accelerator it waits for the work that is already queued.

        Raises:
            KeyError: A name is unknown; the message lists the known ones.
        """

    def poll_variables(
        self, names: Sequence[str], newer_than: int | None = None
    ) -> VersionedVariables | None:
        """Returns the variables with their version, or None if `newer_than` is still the newest.

        Like `get_variables`, it may be called from any thread. Versions never decrease. A source that counts
        versions overrides this method, so that a client that polls often makes no needless copies. The
        default always returns the variables, without a version.
        """
        del newer_than
        return VersionedVariables(version=None, values=self.get_variables(names))


class Worker(abc.ABC):
    """An object with its own main loop."""

    @abc.abstractmethod
    def run(self) -> None:
        """Runs until the work is done."""


class Saveable(abc.ABC):
    """An object whose state can be saved and restored while none of its other methods runs.

    A state contains only dicts, lists, tuples, tensors, numbers, strings, booleans and None, so that a
    checkpoint can be loaded without executing any code stored in it.
    """

    @abc.abstractmethod
    def save(self) -> State:
        """Returns a copy of the whole state. Later changes to the object do not affect it."""

    @abc.abstractmethod
    def restore(self, state: State) -> None:
        """Restores a state that `save` returned. From then on, both objects behave the same."""


def save_if_saveable(part: Any) -> State:
    """Returns the state of an object that may be `Saveable`, such as an environment; None without `save`."""
    return part.save() if hasattr(part, "save") else None


def restore_if_saved(part: Any, state: State) -> None:
    """Restores a state from `save_if_saveable`. Does nothing if the state is None."""
    if state is not None:
        part.restore(state)


class Learner(VariableSource, Worker, Saveable):
    """Consumes replay and improves variables.

    `step`, `run`, `save` and `restore` are called by one thread at a time. Meanwhile, other threads may call
    `get_variables` and `poll_variables`. `learners.ModuleLearner` implements the locking for this.
    """

    @abc.abstractmethod
    def step(self) -> None:
        """Performs one update, waiting for data if there is none yet.

        A thread that asks for variables delays it only while they are copied. If it raises, the step is not
        completed, and the variables stay those of the previous step. A run counts the step in `learner_steps`
        if the learner has not done so with its counter.
        """

    def run(self, num_steps: int | None = None) -> None:
        """Performs `num_steps` updates, or updates forever."""
        done = 0
        while num_steps is None or done < num_steps:
            self.step()
            done += 1
