"""Builders that make parts for several processes, or for a batched environment."""

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Generic, Self, TypeVar

import torch

from minerva_acme import builders, learners, networks
from minerva_acme.agents import requirements, settings

Networks = TypeVar("Networks")
Config = TypeVar("Config", bound=settings.AgentConfig)


class PlacedBuilder(builders.ConfiguredBuilder[Networks, Config], Generic[Networks, Config]):
    """A builder with copies of itself for other places; its `make_` methods look at the attributes.

    Attributes:
        num_actors: The number of actors that play in their own processes, as set by `for_actors`; None if one
            thread both plays and learns.
        batch_device: The device of the batched environment, as set by `for_batches`; None for other
            environments.
        num_learners: The number of learners that share every batch, as set by `for_learners`.
    """

    num_actors: int | None = None
    batch_device: torch.device | None = None
    num_learners: int = 1

    @property
    def name(self) -> str:
        """The agent's name, for messages."""
        return type(self).__name__.removesuffix("Builder")

    @property
    def num_environments(self) -> int:
        number: int = self.config.num_environments
        return number

    def make_memory(self, input_size: int, generator: torch.Generator) -> networks.Memory:
        """Makes the memory behind an encoder, if the config's `memory` is not "none"."""
        config: Any = self.config
        return networks.make_memory(config.memory, input_size, config.memory_size, generator=generator)

    def learner_arguments(self, parts: builders.LearnerParts[Networks]) -> dict[str, Any]:
        """Returns what a learner gets from the run and the config, whatever the agent's losses are."""
        return {
            "dataset": parts.dataset,
            "max_skipped_batches": self.config.max_skipped_batches,
            "counter": parts.counter,
            "logger": parts.logger,
            "generator": parts.generator,
            "ranks": parts.ranks,
            "spec": parts.spec,
        }

    def averages(self) -> Iterator[learners.Part]:
        """Yields the part of the learner that averages the policy's weights, if the config asks for it."""
        if self.config.policy_average_rate:
            yield learners.Averages(self.policy_variables, self.config.policy_average_rate)

    @property
    def evaluation_variables(self) -> Sequence[str]:
        if not self.config.policy_average_rate:
            return self.policy_variables
        return [learners.average_of(name) for name in self.policy_variables]

    def for_actors(self, num_actors: int) -> Self:
        return self._placed(num_actors=num_actors)

    def for_learners(self, num_learners: int) -> Self:
        requirements.check_learners(self.name, self.config, num_learners)
        shared = {}
        for name in ("batch_size", "minibatch_size"):
            if hasattr(self.config, name):
                shared[name] = requirements.share(name, getattr(self.config, name), num_learners)
        config: Any = self.config
        try:
            config = dataclasses.replace(config, **shared)
        except ValueError as error:
            raise ValueError(f"A share of one of {num_learners} learners is too small: {error}") from error
        return self.with_config(config)._placed(num_learners=num_learners)

    def for_batches(self, device: torch.device) -> Self:
        requirements.check_batches(self.name, self.config)
        return self._placed(batch_device=device)

    def _placed(self, **attributes: Any) -> Self:
        builder = copy.copy(self)
        vars(builder).update(attributes)
        return builder
