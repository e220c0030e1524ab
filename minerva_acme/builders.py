"""Builders, which make the parts of an agent. Override one method to replace one part."""

import abc
import copy
import dataclasses
import difflib
import types as python_types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
import tree
from torch import nn

from minerva_acme import actors, core, counting, loggers, specs, types
from minerva_acme.names import foreign_names, readable
from minerva_acme.replay import base as replay

Networks = TypeVar("Networks")
Config = TypeVar("Config")
Part = TypeVar("Part")


class AgentPolicy(core.Saveable):
    """A policy that acts with weights from a variable source. Its saved state is its random generator.

    A feed-forward policy defines `batch`. A recurrent one, an `actors.RecurrentPolicy`, defines `step` and
    `initial_state` instead, and the caller keeps its state. `__call__` keeps the state for one episode:

        policy.reset()
        action = policy(timestep.observation).action
    """

    critic_observations: tuple[str, ...] = ()
    """The entries of a dict of observations that only the critic sees: the policy takes observations with or
    without them."""
    _state: types.NestedArray = None  # the recurrent state of `__call__`; None at the start of an episode

    def __repr__(self) -> str:
        return type(self).__name__

    def seen(self, observations: Any) -> Any:
        """Returns the part of observations, or of their specs, that the policy sees."""
        return specs.without(observations, self.critic_observations)

    def batch(self, observations: types.NestedArray) -> actors.PolicyOutput:
        """Chooses actions for E observations. All arrays have a leading axis E.

        Raises:
            ValueError: The policy is recurrent, so it also needs its state.
        """
        raise ValueError(
            f"{type(self).__name__} must define `batch`, or be called through `step` with its recurrent "
            "state. `actors.RecurrentActor` and `actors.RecurrentVectorActor` keep that state; the builder's "
            "`make_actor` and `make_vector_actor` make them."
        )

    def initial_state(self, num_environments: int) -> types.NestedArray:
        """Returns the recurrent state at the start of an episode, arrays [E, ...]; () without one."""
        return ()

    def step(
        self, observations: types.NestedArray, state: types.NestedArray
    ) -> tuple[actors.PolicyOutput, types.NestedArray]:
        """Chooses actions as `batch` does, with a recurrent state; see `actors.RecurrentPolicy`."""
        return self.batch(observations), state

    def __call__(self, observation: types.NestedArray) -> actors.PolicyOutput:
        """Chooses the action for one observation, the next of the episode that `reset` started."""
        state = self.initial_state(1) if self._state is None else self._state
        (action, extras), self._state = self.step(_with_axis(observation), state)
        return actors.PolicyOutput(_first_row(action), _first_row(extras))

    def reset(self) -> None:
        """Starts an episode for `__call__`: clears the recurrent state, if there is one."""
        self._state = None

    def as_module(self) -> nn.Module:
        """Returns a module that maps observations [B, ...] to the actions of `batch`, for `torch.export`.

        For a recurrent policy, the module maps observations, the state as a tuple of tensors [B, ...] and
        `start` [B] to the actions and the state after them. `start` is true where an episode starts with
        this observation; the given state is not used there.

        Raises:
            ValueError: The policy explores, or cannot be written as a module.
        """
        raise ValueError(
            f"A policy must define `as_module` to be exported as a program, but {type(self).__name__} does "
            "not. Define it, or export only the weights."
        )

    @abc.abstractmethod
    def set_variables(self, values: list[types.NestedArray]) -> None:
        """Sets the weights, in the order of the builder's `policy_variables`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnerParts(Generic[Networks]):
    """The objects from which a builder makes the learner."""

    networks: Networks
    """The networks, as `make_networks` returned them."""
    dataset: Iterator[Any]
    """The iterator of batches, as `make_dataset` returned it."""
    client: replay.ReplayClient | None = None
    """The client of the replay store, for a learner that sets priorities. None if no priorities are set, for
    example when the dataset does not come from replay."""
    spec: specs.EnvironmentSpec
    """The specs of the environment."""
    counter: counting.Counter
    """The counter of the learner's steps."""
    logger: loggers.Logger
    """The logger of the learner's metrics, one row per step."""
    generator: torch.Generator
    """The generator for the learner's random numbers, on `device`."""
    device: torch.device
    """The device that the learner computes on."""
    share_done: Callable[[int], float] | None = None
    """The share of the run, in [0, 1], that is done after a number of learner steps, for schedules that end
    with the run. None if its end is unknown: schedules then keep their first value."""
    ranks: Any = None
    """The `learners.Ranks` of a learner that takes a share of every batch, to be given to its
    `learners.Updates`. None if there is one learner."""


class AgentBuilder(abc.ABC, Generic[Networks]):
    """Makes the parts of one agent from an environment's spec.

    The parts interact only through the interfaces in `core`: the adder writes to the tables, the dataset
    reads from them, the learner consumes the dataset, and the actor acts with a policy whose variables it
    pulls from the learner. To replace a part, subclass and override its `make_` method.

    Names that begin with `make_` are for these hooks: defining a subclass with another one, such as
    `make_netwoks`, raises an error. A base class of your own may add hooks as abstract methods.
    """

    replaced_hooks: ClassVar[Collection[str]] = ()
    """Inherited hooks that this agent does not call: overriding them is refused. An agent that calls
    them again sets ()."""

    saveables: Mapping[str, core.Saveable] = python_types.MappingProxyType({})
    """Your own objects that are saved and restored with a run, by name: a curriculum, a learned reward. Set
    them in `__init__`, so that the copies of a builder which a run makes share them. The learner is saved by
    itself, and so is a dataset with `save` and `restore`."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        _check_hooks(cls)

    @abc.abstractmethod
    def check_spec(self, spec: specs.EnvironmentSpec) -> None:
        """Raises a ValueError, naming agent and spec, if the agent cannot act in such an environment."""

    @abc.abstractmethod
    def make_networks(self, spec: specs.EnvironmentSpec, generator: torch.Generator) -> Networks:
        """Makes the networks, with initial weights drawn from `generator`."""

    def extras_spec(self, spec: specs.EnvironmentSpec) -> types.NestedSpec:
        """Returns the specs of the extras that the policy records with each action, or () for none.

        Recorded episodes are played into replay with these extras; see `datasets.play`.
        """
        return ()

    @abc.abstractmethod
    def make_replay_tables(self, spec: specs.EnvironmentSpec) -> Sequence[replay.TableConfig]:
        """Describes the tables that adder and dataset share; empty if the dataset does not use replay."""

    @abc.abstractmethod
    def make_adder(self, client: replay.ReplayClient, spec: specs.EnvironmentSpec) -> core.Adder:
        """Makes the adder through which an actor writes to replay."""

    @abc.abstractmethod
    def make_dataset(
        self, client: replay.ReplayClient, spec: specs.EnvironmentSpec, device: torch.device
    ) -> Iterator[Any]:
        """Makes the iterator of batches that the learner consumes. The caller closes it."""

    @abc.abstractmethod
    def make_learner(self, parts: LearnerParts[Networks]) -> core.Learner:
        """Makes the learner, on `parts.device`. To give it a different part, pass a changed copy on:

            return super().make_learner(dataclasses.replace(parts, dataset=Mine(parts.dataset)))

        Args:
            parts: The objects to make the learner from.
        """

    def make_optimizer(self, name: str, parameters: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Makes one of the learner's optimisers. Override it to train with a different one:

            return torch.optim.AdamW(parameters, weight_decay=1e-4)

        Args:
            name: The name of what it trains, such as "policy"; the agent's README lists the names.
            parameters: PyTorch parameter groups, each with the learning rate from the config.
        """
        return torch.optim.Adam(parameters)

    @abc.abstractmethod
    def make_policy(
        self,
        networks: Networks,
        spec: specs.EnvironmentSpec,
        generator: torch.Generator,
        evaluation: bool = False,
        counter: counting.Counter | None = None,
        actor_index: int = 0,
    ) -> AgentPolicy:
        """Makes the policy to act with.

        Args:
            networks: The networks, as `make_networks` returned them.
            spec: The specs of the environment.
            generator: The generator for the policy's random numbers, on the CPU, or on the device of
                `for_batches`.
            evaluation: Whether the policy is for evaluation; otherwise it explores.
            counter: The run's counter, for schedules: its `actor_steps` count the environment steps so far.
                With None, schedules stay at their first value.
            actor_index: The index of the actor among those of a distributed run, for exploration that differs
                between actors. Its environment e is number `actor_index * num_environments + e` of the run.
        """

    def for_actors(self, num_actors: int) -> Self:
        """Returns this agent's builder for `num_actors` actors that run in parallel with the learner.

        Each actor has its own `num_environments` environments. No thread then both writes and samples, so
        the tables can make the faster side wait. See `minerva_acme.distributed`.

        Raises:
            ValueError: The agent supports only one actor.
        """
        raise ValueError(
            f"{type(self).__name__} must define `for_actors` to run {num_actors} actors in separate "
            "processes. Define it, or train in one process with `run_experiment`."
        )

    @property
    def needs_every_actor(self) -> bool:
        """True if the learner waits for data from each actor: a run ends when one of them is given up."""
        return False

    def for_learners(self, num_learners: int) -> Self:
        """Returns this agent's builder for the datasets and learners of shares of every batch.

        Each of `num_learners` learners draws an equal share from the same replay, and all make the same step
        together; see `learners.Ranks`. Every loss must be a mean over items.

        Raises:
            ValueError: The agent has no such shares, or its config does not allow them.
        """
        raise ValueError(
            f"{type(self).__name__} must define `for_learners` to be trained by {num_learners} learners. "
            "Define it, or train with one learner."
        )

    def for_batches(self, device: torch.device) -> Self:
        """Returns this agent's builder for a batched environment, whose tensors are on `device`.

        Its tables are rings, its layouts and its policy take tensors on the device, and `make_batched_adder`
        and `make_batched_actor` make the parts that play.

        Raises:
            ValueError: The agent cannot be trained in a batched environment.
        """
        raise ValueError(
            f"{type(self).__name__} must define `for_batches` to be trained in a batched environment. Define "
            "it, or play single environments or a `VectorEnvironment`."
        )

    @property
    @abc.abstractmethod
    def policy_variables(self) -> Sequence[str]:
        """The names of the learner's variables that `AgentPolicy.set_variables` takes.

        A `learners.ModuleLearner` serves its modules by name. On the kit for off-policy agents they are the
        fields of the networks' named tuple, such as "policy", or "target_policy" to act by that one.
        """

    @property
    def evaluation_variables(self) -> Sequence[str]:
        """The variables by which evaluations and saved policies act, each in the place of one of
        `policy_variables`: the same ones, or averages of them; see `learners.Averages`."""
        return self.policy_variables

    @property
    @abc.abstractmethod
    def variable_update_period(self) -> int:
        """The number of an actor's steps, each in all of its environments, between its requests for newer
        variables."""

    @property
    def num_environments(self) -> int:
        """The number of environments that are played at once, each with its own adder."""
        return 1

    @property
    def bootstraps(self) -> bool:
        """True if the learner needs the true last observation of an episode, to bootstrap from at a time
        limit. An agent that does not need it overrides this."""
        return True

    @property
    def learner_step(self) -> str:
        """A description of a learner step, shown to users after "a learner step is"; "" for none."""
        return ""

    @abc.abstractmethod
    def learner_steps_due(self, num_inserted: int) -> int:
        """Returns the total number of learner steps due once `num_inserted` items have been written.

        `num_inserted` counts the items of all adders. The result never falls as it grows. A single-threaded
        runner performs learner steps until this many are done.
        """

    def num_learner_steps(self, num_env_steps: int) -> int:
        """Returns the number of learner steps in a run of `num_env_steps` steps, over all environments."""
        return self.learner_steps_due(self.max_inserted(num_env_steps))

    def max_inserted(self, num_env_steps: int) -> int:
        """Returns the most items that `num_env_steps` steps, over all environments, can write.

        By default that is one per step. A builder whose items take more steps overrides this, so that a
        runner can warn at the start that a run is too short to learn anything.
        """
        return num_env_steps

    def make_actor(
        self,
        policy: AgentPolicy,
        variable_source: core.VariableSource | None = None,
        adder: core.Adder | None = None,
    ) -> core.Actor:
        """Makes an actor that writes to `adder` and takes its weights from `variable_source`, if given."""
        make = actors.RecurrentActor if _has_memory(policy) else actors.FeedForwardActor
        return make(
            policy=policy, adder=adder, variable_client=self._make_variable_client(policy, variable_source)
        )

    def make_vector_actor(
        self,
        policy: AgentPolicy,
        variable_source: core.VariableSource | None = None,
        adders: Sequence[core.Adder] = (),
    ) -> core.VectorActor:
        """Makes an actor for several environments, with one adder per environment if any are given."""
        make = actors.RecurrentVectorActor if _has_memory(policy) else actors.FeedForwardVectorActor
        return make(
            policy=policy, adders=adders, variable_client=self._make_variable_client(policy, variable_source)
        )

    def make_batched_adder(
        self, client: replay.ReplayClient, spec: specs.EnvironmentSpec
    ) -> core.BatchedAdder:
        """Makes the adder of a batched environment; a builder with `for_batches` defines it."""
        raise ValueError(f"{type(self).__name__} must define `make_batched_adder` next to `for_batches`.")

    def make_batched_actor(
        self,
        policy: AgentPolicy,
        variable_source: core.VariableSource | None = None,
        adder: core.BatchedAdder | None = None,
    ) -> core.BatchedActor:
        """Makes an actor for a batched environment, with a policy made by a builder `for_batches`."""
        return actors.BatchedFeedForwardActor(
            policy=policy, adder=adder, variable_client=self._make_variable_client(policy, variable_source)
        )

    def _make_variable_client(
        self, policy: AgentPolicy, source: core.VariableSource | None
    ) -> actors.VariableClient | None:
        if source is None:
            return None
        return actors.VariableClient(
            source, self.policy_variables, policy.set_variables, update_period=self.variable_update_period
        )


def _check_hooks(builder: type[AgentBuilder[Any]]) -> None:
    """Checks that what a class outside of this library makes or overrides is called.

    Raises:
        ValueError: A `make_` method is none of the hooks, for example because its name is misspelt, or a
            hook is one that the agent does not call.
    """
    ours = __name__.partition(".")[0]
    own = [kind for kind in builder.__mro__ if kind.__module__.partition(".")[0] != ours]
    hooks = {
        name
        for kind in builder.__mro__
        for name, value in vars(kind).items()
        if name.startswith("make_") and (kind not in own or getattr(value, "__isabstractmethod__", False))
    }.difference(builder.replaced_hooks)
    for owner, name, value in [(kind, *member) for kind in own for member in vars(kind).items()]:
        is_method = callable(value) or isinstance(value, classmethod | staticmethod)
        if name in builder.replaced_hooks or (is_method and name.startswith("make_") and name not in hooks):
            meant = difflib.get_close_matches(name, sorted(hooks), n=1, cutoff=0.8)
            raise ValueError(
                f"`{name}` of {owner.__name__} must make a part of {builder.__name__}, but nothing calls it. "
                f"{f'Did you mean `{meant[0]}`? ' if meant else ''}The methods are "
                f"{', '.join(sorted(hooks))}. Give a method of your own a name without `make_`, or "
                "declare it as an abstract method in a base class."
            )


class ConfiguredBuilder(foreign_names.Translated, AgentBuilder[Networks], Generic[Networks, Config]):
    """An `AgentBuilder` with a config, which the command line and `run.json` require.

    class MyBuilder(ConfiguredBuilder[MyNetworks, MyConfig]):
        config_class = MyConfig
    """

    config_class: ClassVar[type[Any]]
    """The dataclass of the agent's hyperparameters. A subclass inherits it or sets its own."""

    def __init__(self, config: Config) -> None:
        """Initialises the builder.

        Raises:
            ValueError: The class has no `config_class`, or the config is of a different class.
        """
        _check_config(type(self), config)
        self._config = config

    @property
    def config(self) -> Config:
        """The hyperparameters that the builder was made with."""
        return self._config

    def with_config(self, config: Config) -> Self:
        """Returns a copy of this builder with another config."""
        builder = copy.copy(self)
        builder._config = config
        return builder

    def __repr__(self) -> str:
        return f"{type(self).__name__}({readable.of_config(self._config)})"


def find_config_class(builder: type[Any]) -> type[Any]:
    """Returns the config dataclass of a builder class.

    Raises:
        ValueError: `config_class` is missing or not a dataclass.
    """
    found = getattr(builder, "config_class", None)
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise ValueError(
            f"{builder.__name__} must set `config_class` to the dataclass of its config, got {found!r}. "
            "Write `config_class = MyConfig` in the class."
        )
    return found


def _check_config(builder: type[Any], config: Any) -> None:
    """Checks that a builder is given a config of its `config_class`.

    Raises:
        ValueError: The config is of a different class; the message says what to write.
    """
    expected, name = find_config_class(builder).__name__, builder.__name__
    if isinstance(config, type):
        raise ValueError(
            f"{name} must be given a config, got the class {config.__name__}. Make an instance: "
            f"{name}({config.__name__}())"
        )
    # A builder may have a different config class from its base, and make the base's config from it.
    named = [vars(kind)["config_class"] for kind in builder.__mro__ if "config_class" in vars(kind)]
    if not isinstance(config, tuple(named)):
        raise ValueError(
            f"{name} must be given a {expected}, got {type(config).__name__}. Write {name}({expected}(...)), "
            "or use the builder that belongs to your config."
        )


def check_made(builder: Any, method: str, part: Part) -> Part:
    """Returns what a `make_` method of a builder returned.

    Raises:
        TypeError: It is None.
    """
    if part is None:
        raise TypeError(
            f"`{method}` of {type(builder).__name__} must return what it makes, got None. Is a `return` "
            "missing?"
        )
    return part


def _has_memory(policy: AgentPolicy) -> bool:
    return bool(tree.flatten(policy.initial_state(1)))


def _with_axis(nest: types.NestedArray) -> types.NestedArray:
    if isinstance(nest, np.ndarray):  # the usual case, ten times faster
        return nest[None]
    return tree.map_structure(lambda leaf: np.asarray(leaf)[None], nest)


def _first_row(nest: types.NestedArray) -> types.NestedArray:
    if isinstance(nest, np.ndarray):
        return nest[0]
    if not nest:  # `tree` takes 5 microseconds for an empty nest
        return nest
    if isinstance(nest, tuple) and hasattr(nest, "_make"):  # the usual nest of extras
        return nest._make([part[0] if type(part) is np.ndarray else _first_row(part) for part in nest])
    return tree.map_structure(lambda leaf: leaf[0], nest)
