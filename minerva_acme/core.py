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
"""

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple, Self, TypeAlias

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
    """Selects actions and observes what they lead to."""

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
        """Takes newer weights if there are any; with `wait`, returns only once it holds them."""


class VectorActor(abc.ABC):
    """An actor in E environments at once; each has its episodes, and its calls, in an order of its own."""

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
        """Takes newer weights if there are any; with `wait`, returns only once it holds them."""


class Adder(Closeable):
    """Turns a stream of timesteps into replay items. A context manager that closes itself.

    Calls come as `add_first (add)*` for each episode; the `add` whose timestep is LAST ends it.

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


class VariableSource(abc.ABC):
    """Something that weights can be pulled from."""

    @abc.abstractmethod
    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        """Returns one nest of CPU numpy arrays per name, copied: later updates leave them as they are.

        Raises:
            KeyError: a name is unknown; the message lists the known ones.
        """

    def poll_variables(
        self, names: Sequence[str], newer_than: int | None = None
    ) -> VersionedVariables | None:
        """Returns the variables with their version, or None where `newer_than` is still the newest.

        A source that counts versions overrides this, so that a client that polls often copies
        nothing in vain; this default always returns the variables.
        """
        del newer_than
        return VersionedVariables(version=None, values=self.get_variables(names))


class Worker(abc.ABC):
    """Something with a main loop of its own."""

    @abc.abstractmethod
    def run(self) -> None:
        """Runs until its work is done."""


class Saveable(abc.ABC):
    """Something whose state can be saved and restored.

    A state is made of dicts, lists, tuples, tensors, numbers, strings, booleans and None alone, so
    that a checkpoint can be loaded without executing any code stored in it.
    """

    @abc.abstractmethod
    def save(self) -> State:
        """Returns the whole state, copied: later changes leave it as it is."""

    @abc.abstractmethod
    def restore(self, state: State) -> None:
        """Restores a state that `save` returned; from here on both behave the same."""


class Learner(VariableSource, Worker, Saveable):
    """Consumes replay and improves variables."""

    @abc.abstractmethod
    def step(self) -> None:
        """Performs one update, waiting for data if there is none yet."""

    def run(self, num_steps: int | None = None) -> None:
        """Performs `num_steps` updates, or updates forever."""
        done = 0
        while num_steps is None or done < num_steps:
            self.step()
            done += 1
