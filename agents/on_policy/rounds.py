"""Rollouts of several actors, each stamped with its actor and version: whole rounds, or a queue.

A round of version v consists of E rollouts of each of N actors, whose last action was chosen by the weights
of version v. Rollouts of older weights, and an actor's rollouts beyond E, are dropped and counted. A
queue drops nothing, and tells how old the weights of each step are.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import dm_env
import numpy as np
import torch
import tree

from minerva_acme import core, specs, types
from minerva_acme.replay import base as replay

STEP_BITS = 40
"""The lower bits of a version count learner steps; the bits above them count the learner's starts."""


def learner_steps(version: Any) -> Any:
    """Returns the learner steps in a version, or in a tensor of versions."""
    return version & ((1 << STEP_BITS) - 1)


class Stamped(NamedTuple):
    """A policy's extras of an action, with a stamp of the actor that recorded them."""

    extras: types.NestedArray
    stamp: Any  # [2] int64: the actor's number, the version of its weights


def stamped_spec(extras: types.NestedSpec) -> Stamped:
    """Returns the specs of `Stamped`. Args: extras: The specs of the policy's extras."""
    return Stamped(extras, specs.Array((2,), np.int64, name="stamp"))


class StampingAdder(core.Adder):
    """An adder that writes with every step its actor and the version of the weights.

    Attributes:
        stamp: The actor's number and the version, written with the steps from now on.
        in_rounds: True if the actor waits for the weights of the next round.
    """

    def __init__(self, adder: core.Adder, in_rounds: bool = True) -> None:
        """Makes the adder.

        Args:
            adder: The adder that writes; its extras are `Stamped`. It is closed with this one.
            in_rounds: True if the actor waits for newer weights after a rollout in each environment.
        """
        self.stamp = (0, 0)
        self.in_rounds = in_rounds
        self._adder = adder

    def add_first(self, timestep: dm_env.TimeStep) -> None:
        self._adder.add_first(timestep)

    def add(
        self, action: types.NestedArray, next_timestep: dm_env.TimeStep, extras: types.NestedArray = ()
    ) -> None:
        self._adder.add(action, next_timestep, Stamped(extras, np.array(self.stamp, np.int64)))

    @property
    def num_inserted(self) -> int:
        return self._adder.num_inserted

    def flush(self) -> None:
        self._adder.flush()

    def reset(self) -> None:
        self._adder.reset()

    def close(self) -> None:
        self._adder.close()


class RoundDataset(core.Closeable, Iterator[Any]):
    """Yields rounds: `data` is a `Rollout` [T, N * E, ...], in the order of the actors.

    Attributes:
        version: The version of the rounds from now on, which is the version of the learner's weights.
        num_stale: The number of rollouts of another version that were dropped.
        num_surplus: The number of rollouts dropped because their actor's part of the round was complete.
        wait_seconds: The total time that it has waited for rollouts, in seconds.
    """

    def __init__(
        self,
        sampler: replay.Sampler,
        unpack: Callable[[Mapping[str, torch.Tensor]], types.Rollout],
        *,
        num_actors: int,
        rollouts_each: int,
        device: torch.device | str = "cpu",
    ) -> None:
        """Makes the dataset; nothing is sampled before the first round is asked for.

        Args:
            sampler: The source of rollouts, each given once; closed with the dataset.
            unpack: Turns their fields into a `Rollout` whose extras are `Stamped`.
            num_actors: The number of actors, N.
            rollouts_each: The number of rollouts of each actor in a round, E.
            device: The device of the tensors.

        Raises:
            ValueError: A number is below 1.
        """
        if num_actors < 1 or rollouts_each < 1:
            raise ValueError(
                f"`num_actors` and `rollouts_each` must be >= 1, got {num_actors} and {rollouts_each}."
            )
        self.version = 0
        self.num_stale = 0
        self.num_surplus = 0
        self.wait_seconds = 0.0
        self._sampler = sampler
        self._unpack = unpack
        self._rollouts_each = rollouts_each
        self._device = torch.device(device)
        self._found: list[list[_Found]] = [[] for _ in range(num_actors)]
        self._found_version = 0

    def __next__(self) -> Any:
        """Waits for the next round and returns it.

        Raises:
            ReplayError: The dataset is closed or the store is gone. Rollouts found so far are kept.
        """
        from minerva_acme.replay.dataset import ReplaySample

        if self._found_version != self.version:
            self.num_stale += sum(map(len, self._found))
            self._found = [[] for _ in self._found]
            self._found_version = self.version
        while missing := len(self._found) * self._rollouts_each - sum(map(len, self._found)):
            began = time.monotonic()
            try:
                info, fields = self._sampler.sample_batch(missing)
            finally:
                self.wait_seconds += time.monotonic() - began
            self._sort(info, fields)
        found = [rollout for of_actor in self._found for rollout in of_actor]
        self._found = [[] for _ in self._found]
        info = replay.SampleInfo(
            *(np.stack(numbers) for numbers in zip(*(f.info for f in found), strict=True))
        )
        data = tree.map_structure(
            lambda *parts: torch.stack(parts, dim=1).to(self._device), *(f.data for f in found)
        )
        return ReplaySample(info, data)

    def close(self) -> None:
        self._sampler.close()

    def _sort(self, info: replay.SampleInfo, fields: Mapping[str, Any]) -> None:
        rollouts = self._unpack({name: torch.as_tensor(field) for name, field in fields.items()})
        last = rollouts.extras.stamp[-1]  # [B, 2]
        data = rollouts._replace(extras=rollouts.extras.extras)
        for index, (actor, version) in enumerate(last.tolist()):
            if version != self.version:
                self.num_stale += 1
            elif len(self._found[actor]) == self._rollouts_each:
                self.num_surplus += 1
            else:
                self._found[actor].append(
                    _Found(
                        [numbers[index] for numbers in info],
                        tree.map_structure(lambda leaf, index=index: leaf[:, index], data),
                    )
                )


def of_any_actor(
    unpack: Callable[[Mapping[str, torch.Tensor]], types.Rollout],
) -> Callable[[Mapping[str, torch.Tensor]], types.Rollout]:
    """Returns a function that unpacks a learner's share of a round as if one actor had played all of it.

    The learners draw from one queue, so that no one knows which actors' rollouts are in its share.
    """

    def unpack_as_one(fields: Mapping[str, torch.Tensor]) -> types.Rollout:
        rollout = unpack(fields)
        stamp = rollout.extras.stamp * torch.tensor([0, 1])  # the actor's number, the version
        return rollout._replace(extras=rollout.extras._replace(stamp=stamp))

    return unpack_as_one


class QueueDataset(core.Closeable, Iterator[Any]):
    """Yields the rollouts of all actors as they come, with `BehaviourExtras` that have the age of each step.

    Attributes:
        version: The version of the learner's weights.
    """

    def __init__(self, dataset: Any) -> None:
        """Args: dataset: Yields rollouts whose extras are `Stamped`; closed with this one."""
        self.version = 0
        self._dataset = dataset

    @property
    def wait_seconds(self) -> float:
        """The total time that the learner has waited for rollouts, in seconds."""
        return float(self._dataset.wait_seconds)

    def __next__(self) -> Any:
        sample = next(self._dataset)
        extras, stamp = sample.data.extras
        # A restarted learner may have made fewer steps than the one before.
        age = (learner_steps(self.version) - learner_steps(stamp[..., 1])).abs()
        return sample._replace(data=sample.data._replace(extras=extras._replace(age=age)))

    def close(self) -> None:
        self._dataset.close()


class _Found(NamedTuple):
    info: list[Any]  # of `SampleInfo`
    data: types.Rollout  # [T, ...]
