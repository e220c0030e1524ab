"""How an agent's parts are made, so that any one of them can be swapped by overriding one method."""

import abc
import dataclasses
import difflib
import types as python_types
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
import tree
from torch import nn

from minerva_acme import actors, core, counting, loggers, specs, types
from minerva_acme.replay import base as replay

Networks = TypeVar("Networks")
Config = TypeVar("Config")


class AgentPolicy(core.Saveable):
    """Acts by weights that come from a variable source. What is saved of it is its randomness.

    A policy defines `batch`. One that remembers the episode, an `actors.RecurrentPolicy`, defines `step` and
    `initial_state` instead: whoever plays keeps what it remembers, and `__call__` does so for one episode.

        policy.reset()
        action = policy(timestep.observation).action
    """

    _state: types.NestedArray = None  # of the episode that `__call__` is in; None: it begins

    def batch(self, observations: types.NestedArray) -> actors.PolicyOutput:
        """Chooses the actions for E observations: everything has a leading axis E.

        Raises:
            ValueError: the policy remembers the episode, of which observations alone say nothing.
        """
        raise ValueError(
            f"{type(self).__name__} must have `batch`, or act by `step` with what it remembers of the "
            "episode. `actors.RecurrentActor` and `actors.RecurrentVectorActor` keep that; `make_actor` and "
            "`make_vector_actor` of its builder make them."
        )

    def initial_state(self, num_environments: int) -> types.NestedArray:
        """Returns what it remembers where an episode begins, arrays [E, ...]; () if it remembers nothing."""
        return ()

    def step(
        self, observations: types.NestedArray, state: types.NestedArray
    ) -> tuple[actors.PolicyOutput, types.NestedArray]:
        """Does as `batch`, by what it remembers too; see `actors.RecurrentPolicy`."""
        return self.batch(observations), state

    def __call__(self, observation: types.NestedArray) -> actors.PolicyOutput:
        """Chooses the action for one observation, the next one of the episode that `reset` began."""
        state = self.initial_state(1) if self._state is None else self._state
        (action, extras), self._state = self.step(_with_axis(observation), state)
        return actors.PolicyOutput(_first_row(action), _first_row(extras))

    def reset(self) -> None:
        """Begins an episode for `__call__`: forgets what was before. Without memory it does nothing."""
        self._state = None

    def as_module(self) -> nn.Module:
        """Makes a module from observations [B, ...] to the actions that `batch` chooses, for `torch.export`.

        Raises:
            ValueError: the policy explores, or is none that can be written as a module.
        """
        raise ValueError(
            f"A policy must have `as_module` to be exported as a program, but {type(self).__name__} has "
            "none. Write it, or export the weights alone."
        )

    @abc.abstractmethod
    def set_variables(self, values: list[types.NestedArray]) -> None:
        """Sets the weights, in the order of the builder's `policy_variables`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnerParts(Generic[Networks]):
    """What a run hands a builder to make the learner of."""

    networks: Networks
    """The networks, as `make_networks` returned them."""
    dataset: Iterator[Any]
    """The iterator of batches, as `make_dataset` returned it."""
    client: replay.ReplayClient | None = None
    """The client of the replay store, for a learner that sets priorities. None where none is set, for example
    with a dataset that comes from elsewhere."""
    spec: specs.EnvironmentSpec
    """The specs of the environment."""
    counter: counting.Counter
    """Counts the learner's steps."""
    logger: loggers.Logger
    """Receives the learner's metrics, a row a step."""
    generator: torch.Generator
    """Draws what the learner draws. It is on `device`."""
    device: torch.device
    """The device that the learner computes on."""
    num_learner_steps: int | None = None
    """The number of learner steps of the whole run, for schedules that end with it. None where that is
    unknown: schedules then stay at their first value."""


class AgentBuilder(abc.ABC, Generic[Networks]):
    """Makes the parts of one agent from an environment's spec.

    The parts meet only through the contracts of `core`: the adder writes the tables, the dataset
    reads them, the learner consumes the dataset, the actor acts with a policy whose variables it
    pulls from the learner. To swap a part, subclass and override its `make_` method.

    A subclass whose `make_` method would have no effect is refused where it is defined: the name must be that
    of a part, or be used by a method of the class or its bases, or be abstract.
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        _check_make_methods(cls)

    @abc.abstractmethod
    def check_spec(self, spec: specs.EnvironmentSpec) -> None:
        """Raises ValueError, naming agent and spec, where this agent cannot act in such an environment."""

    @abc.abstractmethod
    def make_networks(self, spec: specs.EnvironmentSpec, generator: torch.Generator) -> Networks:
        """Makes the networks, with initial weights drawn from `generator`."""

    @abc.abstractmethod
    def make_replay_tables(self, spec: specs.EnvironmentSpec) -> Sequence[replay.TableConfig]:
        """Describes the tables that adder and dataset share; none where the dataset comes from elsewhere."""

    @abc.abstractmethod
    def make_adder(self, client: replay.ReplayClient, spec: specs.EnvironmentSpec) -> core.Adder:
        """Makes the adder that an actor writes with."""

    @abc.abstractmethod
    def make_dataset(
        self, client: replay.ReplayClient, spec: specs.EnvironmentSpec, device: torch.device
    ) -> Iterator[Any]:
        """Makes the iterator of batches that the learner consumes; closed by the caller."""

    @abc.abstractmethod
    def make_learner(self, parts: LearnerParts[Networks]) -> core.Learner:
        """Makes the learner, on `parts.device`. To give it another part, pass on a changed copy:

            return super().make_learner(dataclasses.replace(parts, dataset=Mine(parts.dataset)))

        Args:
            parts: What it is made of.
        """

    def make_optimizer(self, name: str, parameters: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Makes one of the learner's optimisers; override it to train with another.

            return torch.optim.AdamW(parameters, weight_decay=1e-4)

        Args:
            name: what it trains, such as "policy"; the agent's README lists the names.
            parameters: torch's parameter groups, each with the learning rate that the config says.
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
    ) -> AgentPolicy:
        """Makes the policy to act with.

        Args:
            networks: what `make_networks` returned.
            spec: of the environment.
            generator: on the CPU, for what it draws.
            evaluation: whether it is the one to be judged by, or explores.
            counter: of the run, whose `actor_steps` are the environment steps made so far, for schedules;
                None: there are none, as where a trained policy is loaded.
        """

    def for_actors(self, num_actors: int) -> Self:
        """Returns the builder of this agent for `num_actors` actors that play beside its learner.

        Each actor has `num_environments` of its own. No thread both writes and samples then, so the tables
        make the faster side wait. See `minerva_acme.distributed`.

        Raises:
            ValueError: this agent has one actor alone.
        """
        raise ValueError(
            f"{type(self).__name__} must have `for_actors` to play with {num_actors} actors in processes of "
            "their own. Define it, or train with `run_experiment`, in one process."
        )

    @property
    @abc.abstractmethod
    def policy_variables(self) -> Sequence[str]:
        """The names of the learner's variables that `AgentPolicy.set_variables` takes."""

    @property
    @abc.abstractmethod
    def variable_update_period(self) -> int:
        """Environment steps between an actor's looks for newer variables."""

    @property
    def num_environments(self) -> int:
        """How many environments are played at once, each with an adder of its own."""
        return 1

    @property
    def bootstraps(self) -> bool:
        """Whether the learner needs the true last observation of an episode, which a time limit bootstraps
        from. An agent that does not overrides it."""
        return True

    @property
    def learner_step(self) -> str:
        """What a learner step is, in words that follow "a learner step is", for who watches a run; "" where
        nothing is to say."""
        return ""

    @abc.abstractmethod
    def learner_steps_due(self, num_inserted: int) -> int:
        """Learner steps that should have been made in all once `num_inserted` items were written.

        It never falls as `num_inserted`, of all adders together, grows. A runner in one thread learns
        while fewer were made.
        """

    def num_learner_steps(self, num_env_steps: int) -> int:
        """The learner steps of a run of so many environment steps, those of all environments together."""
        return self.learner_steps_due(self.max_inserted(num_env_steps))

    def max_inserted(self, num_env_steps: int) -> int:
        """The items that so many steps, of all environments together, may write at most: one a step.

        Where its items need more, a builder says so, and a runner can warn at the start that a run is too
        short to learn anything.
        """
        return num_env_steps

    def make_actor(
        self,
        policy: AgentPolicy,
        variable_source: core.VariableSource | None = None,
        adder: core.Adder | None = None,
    ) -> core.Actor:
        """Makes an actor that writes to `adder`, if any, and follows `variable_source`, if any."""
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
        """Makes an actor for several environments, which writes to an adder each, if there are any."""
        make = actors.RecurrentVectorActor if _has_memory(policy) else actors.FeedForwardVectorActor
        return make(
            policy=policy, adders=adders, variable_client=self._make_variable_client(policy, variable_source)
        )

    def _make_variable_client(
        self, policy: AgentPolicy, source: core.VariableSource | None
    ) -> actors.VariableClient | None:
        if source is None:
            return None
        return actors.VariableClient(
            source, self.policy_variables, policy.set_variables, update_period=self.variable_update_period
        )


def _check_make_methods(builder: type[AgentBuilder[Any]]) -> None:
    """Checks that each `make_` method of a class is one that something calls.

    Raises:
        ValueError: One is not, for example because its name is misspelt.
    """
    members = [(kind, name, value) for kind in builder.__mro__ for name, value in vars(kind).items()]
    known = {name for _, name, value in members if getattr(value, "__isabstractmethod__", False)}
    known |= {*vars(AgentBuilder)}.union(*(_names_used(value) for _, _, value in members))
    for kind, name, value in members:
        is_method = callable(value) or isinstance(value, classmethod | staticmethod)
        if is_method and name.startswith("make_") and name not in known:
            hooks = sorted(hook for hook in known if hook.startswith("make_") and hasattr(builder, hook))
            meant = difflib.get_close_matches(name, hooks, n=1, cutoff=0.8)
            raise ValueError(
                f"`{name}` of {kind.__name__} must be a part of {builder.__name__} or used by it, but "
                f"nothing calls it. {f'Did you mean `{meant[0]}`? ' if meant else ''}The parts "
                f"are {', '.join(hooks)}. Give a method for another purpose a name without `make_`."
            )


def _names_used(value: Any) -> Iterator[str]:
    """Yields the global names and attributes that a member of a class uses."""
    for inner in ("__func__", "fget", "func", "__wrapped__"):  # of methods, properties and decorators
        if (function := getattr(value, inner, None)) is not None:
            yield from _names_used(function)
    codes = [getattr(value, "__code__", None)]
    while codes:
        code = codes.pop()
        if isinstance(code, python_types.CodeType):
            yield from code.co_names
            codes += code.co_consts


class ConfiguredBuilder(AgentBuilder[Networks], Generic[Networks, Config]):
    """An `AgentBuilder` with a config, as the command line and `run.json` need it.

    class MyBuilder(ConfiguredBuilder[MyNetworks, MyConfig]):
        config_class = MyConfig
    """

    config_class: ClassVar[type[Any]]
    """The dataclass of its hyperparameters. A subclass inherits it, or names its own."""

    def __init__(self, config: Config) -> None:
        """Keeps the config.

        Raises:
            ValueError: The class names no `config_class`, or the config is of another one.
        """
        _check_config(type(self), config)
        self._config = config

    @property
    def config(self) -> Config:
        """The hyperparameters that it was made with."""
        return self._config


def find_config_class(builder: type[Any]) -> type[Any]:
    """Returns the config dataclass that a builder's class names.

    Raises:
        ValueError: It names none, or what it names is not a dataclass.
    """
    found = getattr(builder, "config_class", None)
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise ValueError(
            f"{builder.__name__} must name the dataclass of its config as `config_class`, got {found!r}. "
            "Write `config_class = MyConfig` in the class."
        )
    return found


def _check_config(builder: type[Any], config: Any) -> None:
    """Checks that a builder is given a config of the class that it names.

    Raises:
        ValueError: It is of another; the message says what to write.
    """
    expected, name = find_config_class(builder).__name__, builder.__name__
    if isinstance(config, type):
        raise ValueError(
            f"{name} must be given a config, got the class {config.__name__}. Make one of it: "
            f"{name}({config.__name__}())"
        )
    # A builder may name another config than its base, and make the base's from it.
    named = [vars(kind)["config_class"] for kind in builder.__mro__ if "config_class" in vars(kind)]
    if not isinstance(config, tuple(named)):
        raise ValueError(
            f"{name} must be given a {expected}, got {type(config).__name__}. Write {name}({expected}(...)), "
            "or take the builder that belongs to your config."
        )


def _has_memory(policy: AgentPolicy) -> bool:
    return bool(tree.flatten(policy.initial_state(1)))


def _with_axis(nest: types.NestedArray) -> types.NestedArray:
    if isinstance(nest, np.ndarray):  # the usual case, ten times as fast
        return nest[None]
    return tree.map_structure(lambda leaf: np.asarray(leaf)[None], nest)


def _first_row(nest: types.NestedArray) -> types.NestedArray:
    if isinstance(nest, np.ndarray):
        return nest[0]
    if not nest:  # `tree` takes 5 microseconds for nothing
        return nest
    if isinstance(nest, tuple) and hasattr(nest, "_make"):  # the usual nest of extras
        return nest._make([part[0] if type(part) is np.ndarray else _first_row(part) for part in nest])
    return tree.map_structure(lambda leaf: leaf[0], nest)
