"""Layouts of batched steps in a ring: how a reader cuts transitions, trajectories and rollouts from windows.

Shapes: B environments; N items; L rows of a window; T steps of an item.
"""

import abc
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
import tree

from minerva_acme import specs, types
from minerva_acme.replay import base

_Item = TypeVar("_Item")

_FLOAT = specs.Array((), np.float32)
_FLAG = specs.Array((), np.bool_)


class BatchedRow(NamedTuple):
    """A step of B environments: where they were, what they did, and what it led to. Each leaf is [B, ...].

    The row of an environment that only began an episode in this call is no step, and no item starts there.
    """

    observation: types.NestedTensor
    action: types.NestedTensor
    reward: Any  # [B] float32
    discount: Any  # [B] float32
    last: Any  # [B] bool  the episode has ended, by a terminal or a time limit
    next_observation: types.NestedTensor  # the true last one where the episode has ended
    first: Any  # [B] bool  the episode began with `observation`
    return_so_far: Any  # [B] float32  discounted sum of the episode's rewards up to this one
    extras: types.NestedTensor


class BatchedLayout(abc.ABC, Generic[_Item]):
    """A layout whose items are windows of batched steps; each leaf of a step is a column of its own.

    Both observations of a step are stored, since the next row may belong to another episode. A subclass says
    which rows of which fields an item has, and cuts the item at the end of its episode.
    """

    by_episode: bool = True
    """Whether an item belongs to one episode; see `replay.base.Ring`."""

    def __init__(
        self,
        environment_spec: specs.EnvironmentSpec,
        extras_spec: types.NestedSpec,
        num_rows: Mapping[str, int],
    ) -> None:
        """Plans the columns.

        Args:
            environment_spec: The specs of one environment.
            extras_spec: The spec of the extras that the policy records with each action.
            num_rows: The number of rows of each field of `BatchedRow` in an item. Others are not stored.

        Raises:
            ValueError: A number of rows is below 1, or rewards or discounts are not one number per step.
        """
        for name in ("rewards", "discounts"):
            spec = getattr(environment_spec, name)
            if not specs.is_number(spec):
                found = specs.describe(spec) if isinstance(spec, specs.Array) else spec
                raise ValueError(
                    f"`{name}` of batched environments must be one number per step, got {found}. Reduce them."
                )
        row_spec = BatchedRow(
            observation=environment_spec.observations,
            action=environment_spec.actions,
            reward=_FLOAT,
            discount=_FLOAT,
            last=_FLAG,
            next_observation=environment_spec.observations,
            first=_FLAG,
            return_so_far=_FLOAT,
            extras=extras_spec,
        )
        self._specs = {name: getattr(row_spec, name) for name in num_rows}
        self._names = {
            field: ["/".join(map(str, (field, *path))) for path, _ in tree.flatten_with_path(spec)]
            for field, spec in self._specs.items()
        }
        leaves = [
            (name, leaf, num_rows[field])
            for field, spec in self._specs.items()
            for name, leaf in zip(self._names[field], tree.flatten(spec), strict=True)
        ]
        self.signature = base.ItemSignature(
            columns={name: base.ColumnSpec(leaf.shape, np.dtype(leaf.dtype)) for name, leaf, _ in leaves},
            fields={name: base.FieldSpec(name, length) for name, _, length in leaves},
        )

    def pack(self, row: BatchedRow) -> dict[str, torch.Tensor]:
        """Returns the columns of a row, without a copy.

        Raises:
            ValueError: A field has another structure than its spec.
        """
        columns: dict[str, torch.Tensor] = {}
        for field, names in self._names.items():
            value = getattr(row, field)
            leaves = [value] if isinstance(value, torch.Tensor) else tree.flatten(value)
            if len(leaves) != len(names):
                raise ValueError(
                    f"`{field}` must have the structure of its spec {self._specs[field]}, got "
                    f"{len(leaves)} tensors instead of {len(names)}."
                )
            columns.update(zip(names, leaves, strict=True))
        return columns

    @abc.abstractmethod
    def unpack(self, fields: Mapping[str, torch.Tensor]) -> _Item:
        """Returns N items [N, rows, *row shape] as contiguous tensors, with a batch axis."""

    def _rows(self, fields: Mapping[str, torch.Tensor]) -> BatchedRow:
        """Returns the rows of items, [N, rows, ...] each leaf; () for fields that are not stored."""
        row = BatchedRow(*[()] * len(BatchedRow._fields))
        nests = {
            field: tree.unflatten_as(self._specs[field], [fields[name] for name in names])
            for field, names in self._names.items()
        }
        return row._replace(**nests)


class BatchedTransitionLayout(BatchedLayout[types.Transition]):
    """Cuts transitions over the n steps of an episode that start at each step, fewer at its end.

    Rewards and discounts are folded in double precision, as `NStepTransitionAdder` does.
    """

    def __init__(
        self,
        environment_spec: specs.EnvironmentSpec,
        extras_spec: types.NestedSpec = (),
        *,
        n_step: int,
        discount: float,
    ) -> None:
        """Plans the columns.

        Args:
            environment_spec: The specs of one environment.
            extras_spec: The spec of the extras that the policy records with each action.
            n_step: The number of steps that a transition is folded over.
            discount: The discount gamma, per step, in [0, 1].

        Raises:
            ValueError: A number is out of its range, or rewards or discounts are not one number per step.
        """
        if n_step < 1:
            raise ValueError(f"`n_step` must be >= 1, got {n_step}.")
        if not 0.0 <= discount <= 1.0:
            raise ValueError(f"`discount` must be in [0, 1], got {discount}.")
        once = dict.fromkeys(("observation", "action", "extras"), 1)
        every = dict.fromkeys(("reward", "discount", "last", "next_observation"), n_step)
        super().__init__(environment_spec, extras_spec, once | every)
        self._n_step = n_step
        self._gamma = discount

    def unpack(self, fields: Mapping[str, torch.Tensor]) -> types.Transition:
        rows = self._rows(fields)
        reward_t, discount_t = rows.reward.double(), rows.discount.double()  # [N, n]
        reward, discount = reward_t[:, 0], self._gamma * discount_t[:, 0]
        goes_on = ~rows.last  # [N, n]
        happened = torch.ones_like(goes_on[:, 0])
        newest = torch.zeros_like(happened, dtype=torch.int64)  # [N] the last step of the episode so far
        for k in range(1, self._n_step):
            happened = happened & goes_on[:, k - 1]
            reward = torch.where(happened, reward + discount * reward_t[:, k], reward)
            discount = torch.where(happened, discount * self._gamma * discount_t[:, k], discount)
            newest = newest + happened
        items = torch.arange(len(newest), device=newest.device)
        return types.Transition(
            observation=_map(lambda leaf: leaf[:, 0].contiguous(), rows.observation),
            action=_map(lambda leaf: leaf[:, 0].contiguous(), rows.action),
            reward=reward.float(),
            discount=discount.float(),
            next_observation=_map(lambda leaf: leaf[items, newest], rows.next_observation),
            extras=_map(lambda leaf: leaf[:, 0].contiguous(), rows.extras),
        )


class BatchedTrajectoryLayout(BatchedLayout[types.Trajectory]):
    """Cuts trajectories of T transitions, padded after the end of their episode as by `SequenceAdder`: the
    last observation is repeated, and everything else, including the mask, is 0."""

    def __init__(
        self,
        environment_spec: specs.EnvironmentSpec,
        sequence_length: int,
        extras_spec: types.NestedSpec = (),
    ) -> None:
        """Plans the columns.

        Args:
            environment_spec: The specs of one environment.
            sequence_length: The length T, in transitions.
            extras_spec: The spec of the extras that the policy records with each action.

        Raises:
            ValueError: The length is below 1, or rewards or discounts are not one number per step.
        """
        if sequence_length < 1:
            raise ValueError(f"`sequence_length` must be >= 1 transition, got {sequence_length}.")
        every = ("action", "reward", "discount", "last", "next_observation", "extras")
        super().__init__(
            environment_spec, extras_spec, {"observation": 1} | dict.fromkeys(every, sequence_length)
        )

    def unpack(self, fields: Mapping[str, torch.Tensor]) -> types.Trajectory:
        rows = self._rows(fields)
        num_ends = rows.last.cumsum(1)  # [N, T] including this step
        happened = num_ends - rows.last.long() == 0
        times = torch.arange(happened.shape[1] + 1, device=happened.device)
        shown = torch.minimum(times, happened.sum(1, keepdim=True))  # [N, T + 1] the row that is shown
        items = torch.arange(len(happened), device=happened.device)[:, None]

        def padded(leaf: torch.Tensor) -> torch.Tensor:
            return leaf.masked_fill(~happened.view(*happened.shape, *[1] * (leaf.ndim - 2)), 0)

        return types.Trajectory(
            observation=tree.map_structure(
                lambda first, later: torch.cat([first, later], 1)[items, shown],
                rows.observation,
                rows.next_observation,
            ),
            action=_map(padded, rows.action),
            reward=padded(rows.reward),
            discount=padded(rows.discount),
            mask=happened.float(),
            extras=_map(padded, rows.extras),
        )


class BatchedRolloutLayout(BatchedLayout[types.Rollout]):
    """Cuts every T steps of each environment as a rollout, across the ends of episodes, as `RolloutAdder`."""

    by_episode = False

    def __init__(
        self, environment_spec: specs.EnvironmentSpec, rollout_length: int, extras_spec: types.NestedSpec = ()
    ) -> None:
        """Plans the columns.

        Args:
            environment_spec: The specs of one environment.
            rollout_length: The length T, in steps of one environment.
            extras_spec: The spec of the extras that the policy records with each action.

        Raises:
            ValueError: The length is below 1, or rewards or discounts are not one number per step.
        """
        if rollout_length < 1:
            raise ValueError(f"`rollout_length` must be >= 1 step, got {rollout_length}.")
        super().__init__(environment_spec, extras_spec, dict.fromkeys(BatchedRow._fields, rollout_length))

    def unpack(self, fields: Mapping[str, torch.Tensor]) -> types.Rollout:
        rows = _map(lambda leaf: leaf.transpose(0, 1).contiguous(), self._rows(fields))
        last = rows.last.float()
        last[-1] = 1.0
        return types.Rollout(**rows._replace(first=rows.first.float(), last=last)._asdict())


def _map(function: Any, nest: types.NestedTensor) -> types.NestedTensor:
    if isinstance(nest, torch.Tensor):  # the usual case; `tree` takes longer than most functions
        return function(nest)
    return tree.map_structure(function, nest)
