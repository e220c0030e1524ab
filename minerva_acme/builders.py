"""How an agent's parts are made, so that any one of them can be swapped by overriding one method."""

import abc
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import torch

from minerva_acme import actors, core, counting, loggers, specs, types, variables
from minerva_acme.replay import base as replay

Networks = TypeVar("Networks")


class AgentPolicy(core.Saveable):
    """An `actors.Policy` whose weights come from a variable source; its state is its randomness."""

    @abc.abstractmethod
    def __call__(self, observation: types.NestedArray) -> actors.PolicyOutput:
        """Chooses the action for one observation."""

    @abc.abstractmethod
    def set_variables(self, values: list[types.NestedArray]) -> None:
        """Takes over weights, in the order of the builder's `policy_variables`."""


class AgentBuilder(abc.ABC, Generic[Networks]):
    """Makes the parts of one agent from an environment's spec.

    The parts meet only through the contracts of `core`: the adder writes the tables, the dataset
    reads them, the learner consumes the dataset, the actor acts with a policy whose variables it
    pulls from the learner. To swap a part, subclass and override its `make_` method.
    """

    @abc.abstractmethod
    def check_spec(self, spec: specs.EnvironmentSpec) -> None:
        """Raises ValueError, naming agent and spec, where this agent cannot act in such an environment."""

    @abc.abstractmethod
    def make_networks(self, spec: specs.EnvironmentSpec, generator: torch.Generator) -> Networks:
        """Makes the networks, with initial weights drawn from `generator`."""

    @abc.abstractmethod
    def make_replay_tables(self, spec: specs.EnvironmentSpec) -> Sequence[replay.TableConfig]:
        """Describes the tables that adder and dataset share."""

    @abc.abstractmethod
    def make_adder(self, client: replay.ReplayClient, spec: specs.EnvironmentSpec) -> core.Adder:
        """Makes the adder that an actor writes with."""

    @abc.abstractmethod
    def make_dataset(
        self, client: replay.ReplayClient, spec: specs.EnvironmentSpec, device: torch.device
    ) -> Iterator[Any]:
        """Makes the iterator of batches that the learner consumes; closed by the caller."""

    @abc.abstractmethod
    def make_learner(
        self,
        *,
        networks: Networks,
        dataset: Iterator[Any],
        spec: specs.EnvironmentSpec,
        counter: counting.Counter,
        logger: loggers.Logger,
        generator: torch.Generator,
        device: torch.device,
    ) -> core.Learner:
        """Makes the learner, on `device`."""

    @abc.abstractmethod
    def make_policy(
        self,
        networks: Networks,
        spec: specs.EnvironmentSpec,
        generator: torch.Generator,
        evaluation: bool = False,
    ) -> AgentPolicy:
        """Makes the policy to act with: exploring, or the one to be judged by if `evaluation`."""

    @property
    @abc.abstractmethod
    def policy_variables(self) -> Sequence[str]:
        """The names of the learner's variables that `AgentPolicy.set_variables` takes."""

    @property
    @abc.abstractmethod
    def variable_update_period(self) -> int:
        """Environment steps between an actor's looks for newer variables."""

    @abc.abstractmethod
    def learner_steps_due(self, num_inserted: int) -> int:
        """Learner steps that should have been made in all once `num_inserted` items were written.

        It never falls as `num_inserted` grows. A runner in one thread learns while fewer were made.
        """

    def make_actor(
        self,
        policy: AgentPolicy,
        variable_source: core.VariableSource | None = None,
        adder: core.Adder | None = None,
    ) -> core.Actor:
        """Makes an actor that writes to `adder`, if any, and follows `variable_source`, if any."""
        client = None
        if variable_source is not None:
            client = variables.VariableClient(
                variable_source,
                self.policy_variables,
                policy.set_variables,
                update_period=self.variable_update_period,
            )
        return actors.FeedForwardActor(policy=policy, adder=adder, variable_client=client)
