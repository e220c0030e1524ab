"""How trajectories and transitions lie in replay: one object for who writes, who reads and the table."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import dm_env
import numpy as np
import torch
import tree

from minerva_acme import specs, types
from minerva_acme.replay import base, packing

_FLOAT = specs.Array((), np.float32)


class TrajectoryLayout:
    """Items are windows of T + 1 rows; row t holds what arrived at time t.

        row            0      1      2      3
        observation    o_0    o_1    o_2    o_3
        action         0      a_0    a_1    a_2     the action that led to this row's observation
        reward         0      r_1    r_2    r_3
        discount       0      d_1    d_2    d_3
        mask           0      1      1      1
        extras         0      e_0    e_1    e_2     recorded when that action was chosen

    An item of T = 2 that starts at row 1 is `Trajectory(observation=[o_1, o_2, o_3], action=[a_1, a_2],
    reward=[r_2, r_3], ...)`. Nothing of a row is known later than the row, so it is written at once.
    """

    def __init__(
        self,
        environment_spec: specs.EnvironmentSpec,
        sequence_length: int,
        extras_spec: types.NestedSpec = (),
    ) -> None:
        """Plans the columns.

        Args:
            environment_spec: of the environment as the actor sees it.
            sequence_length: T, in transitions.
            extras_spec: of what the policy records beside each action.

        Raises:
            ValueError: the length is below 1, or something cannot be stored.
        """
        if sequence_length < 1:
            raise ValueError(f"`sequence_length` must be >= 1 transition, got {sequence_length}.")
        self._sequence_length = sequence_length
        step_spec = _Step(
            observation=environment_spec.observations,
            action=environment_spec.actions,
            reward=environment_spec.rewards,
            discount=environment_spec.discounts,
            mask=_FLOAT,
            extras=extras_spec,
        )
        self._packer = packing.RowPacker(step_spec)
        self._nothing = tree.map_structure(lambda spec: np.zeros(spec.shape, spec.dtype), step_spec)
        # A row begins with its observation, the first field.
        self._observation_columns = packing.RowPacker(environment_spec.observations, "observation").columns

    @property
    def sequence_length(self) -> int:
        """T, in transitions."""
        return self._sequence_length

    @property
    def signature(self) -> base.ItemSignature:
        """What the table must be made for."""
        columns = self._packer.columns
        return base.ItemSignature(
            columns=columns,
            fields={name: base.FieldSpec(name, self._sequence_length + 1) for name in columns},
        )

    def first(self, observation: types.NestedArray) -> packing.Rows:
        """Returns the rows of an episode's first timestep."""
        return self._packer.pack(self._nothing._replace(observation=observation))

    def step(
        self, action: types.NestedArray, next_timestep: dm_env.TimeStep, extras: types.NestedArray = ()
    ) -> packing.Rows:
        """Returns the rows of a later timestep."""
        return self._packer.pack(
            _Step(
                observation=next_timestep.observation,
                action=action,
                reward=next_timestep.reward,
                discount=next_timestep.discount,
                mask=np.float32(1.0),
                extras=extras,
            )
        )

    def padding(self, rows: packing.Rows) -> packing.Rows:
        """Returns the rows that follow an episode's last ones: their observation again, else 0."""
        padding = {name: np.zeros_like(row) for name, row in rows.items()}
        for name, column in self._observation_columns.items():
            size = column.shape[0]
            padding[name][:size] = rows[name][:size]
        return padding

    def fields(self, start: int) -> dict[str, base.Window]:
        """Returns the item whose first transition leads from row `start` to the next."""
        return {name: base.Window(name, start, self._sequence_length + 1) for name in self._packer.columns}

    def unpack(self, fields: Mapping[str, torch.Tensor]) -> types.Trajectory:
        """Returns B items [B, T + 1, *row shape] as contiguous tensors, rewards and discounts as float32."""
        step: _Step = self._packer.unpack(fields)

        def arrived(nest: types.NestedTensor) -> types.NestedTensor:
            return tree.map_structure(lambda leaf: leaf[:, 1:].contiguous(), nest)

        return types.Trajectory(
            observation=tree.map_structure(torch.Tensor.contiguous, step.observation),
            action=arrived(step.action),
            reward=tree.map_structure(torch.Tensor.float, arrived(step.reward)),
            discount=tree.map_structure(torch.Tensor.float, arrived(step.discount)),
            mask=arrived(step.mask),
            extras=arrived(step.extras),
        )


class TransitionLayout:
    """Items are single rows, each a whole n-step transition; images are not repeated in them.

        column "float32"              o_t | a_t | reward | discount | o_{t+m} | e_t      row t
        column "observation/pixels"   o_t                                                row t

    A field that is an image is a row of its own column: row t for the observation, row t + m for the
    next one. So an image is stored once however many transitions it is part of.
    """

    def __init__(self, environment_spec: specs.EnvironmentSpec, extras_spec: types.NestedSpec = ()) -> None:
        """Plans the columns.

        Args:
            environment_spec: of the environment as the actor sees it; rewards and discounts are
                scalars or nests of them.
            extras_spec: of what the policy records beside each action.

        Raises:
            ValueError: something cannot be stored, or rewards and discounts cannot be folded.
        """
        _check_signal_specs(environment_spec)
        self._observation = packing.RowPacker(environment_spec.observations, "observation")
        self._action = packing.RowPacker(environment_spec.actions, "action")
        self._extras = packing.RowPacker(extras_spec, "extras")
        signal = _Signal(environment_spec.rewards, environment_spec.discounts)
        self._signal = packing.RowPacker(signal)
        # Sums of discounted rewards are floats, whatever the rewards are.
        folded = tree.map_structure(lambda _: _FLOAT, signal)
        self._transition = packing.RowPacker(
            types.Transition(
                observation=environment_spec.observations,
                action=environment_spec.actions,
                reward=folded.reward,
                discount=folded.discount,
                next_observation=environment_spec.observations,
                extras=extras_spec,
            )
        )
        self._images = [name for name, column in self._observation.columns.items() if len(column.shape) > 1]
        # A field lies in the column of its name, but an image of the next observation in the observation's.
        next_images = {f"next_{name}": name for name in self._images}
        self._column_of = {field: next_images.get(field, field) for field in self._transition.columns}
        self._row_columns = [name for name in self._column_of.values() if name not in self._images]

    @property
    def signature(self) -> base.ItemSignature:
        """What the table must be made for."""
        fields = self._transition.columns
        return base.ItemSignature(
            columns={name: fields[name] for name in self._column_of.values()},
            fields={field: base.FieldSpec(column, 1) for field, column in self._column_of.items()},
        )

    def max_window(self, n_step: int) -> int:
        """Returns how many rows the writer must reach back for transitions of up to `n_step` steps."""
        return n_step + 1 if self._images else 1

    def first(self, observation: types.NestedArray) -> packing.Rows:
        """Returns an observation packed, to be handed to `images` and `transition`."""
        return self._observation.pack(observation)

    def step(
        self, action: types.NestedArray, next_timestep: dm_env.TimeStep, extras: types.NestedArray = ()
    ) -> "PackedStep":
        """Returns what an action led to, packed."""
        self._signal.pack(_Signal(next_timestep.reward, next_timestep.discount))  # for its checks
        return PackedStep(
            action=self._action.pack(action),
            rewards=np.array(tree.flatten(next_timestep.reward), np.float64),
            discounts=np.array(tree.flatten(next_timestep.discount), np.float64),
            extras=self._extras.pack(extras),
            next_observation=self._observation.pack(next_timestep.observation),
        )

    def images(self, observation: packing.Rows) -> packing.Rows:
        """Returns the rows to append for each observation of an episode; none if there are no images."""
        return {name: observation[name] for name in self._images}

    def transition(
        self,
        *,
        observation: packing.Rows,
        step: "PackedStep",
        reward: np.ndarray,
        discount: np.ndarray,
        next_observation: packing.Rows,
    ) -> packing.Rows:
        """Returns the rows of a transition.

        Args:
            observation: at t, packed.
            step: what was done at t.
            reward: [R] folded over the steps, one for each leaf of the reward.
            discount: [D] the same for the discount.
            next_observation: at the end of the last step, packed.

        Raises:
            ValueError: a folded reward is too large for float32.
        """
        with np.errstate(over="ignore"):
            folded = np.concatenate([reward, discount]).astype(np.float32)
        if not np.isfinite(folded).all():
            raise ValueError(
                f"The rewards of several steps sum to {reward}, too large for float32. Scale them down in a "
                "wrapper of the environment."
            )
        # In the order of `types.Transition`, whose packer reads them.
        parts = [observation, step.action, {"float32": folded}, next_observation, step.extras]
        return {
            name: np.concatenate([part[name] for part in parts if name in part]) for name in self._row_columns
        }

    def fields(self, start: int, end: int) -> dict[str, base.Window]:
        """Returns the item of the transition from time `start` to time `end` of the episode."""
        return {
            field: base.Window(column, start if column == field else end, 1)
            for field, column in self._column_of.items()
        }

    def unpack(self, fields: Mapping[str, torch.Tensor]) -> types.Transition:
        """Returns B items [B, 1, *row shape] as contiguous tensors [B, ...]."""
        transition = self._transition.unpack({name: rows[:, 0] for name, rows in fields.items()})
        return tree.map_structure(torch.Tensor.contiguous, transition)


class PackedStep(NamedTuple):
    """What an action led to, packed."""

    action: packing.Rows
    rewards: np.ndarray  # [R] float64, the leaves of the reward
    discounts: np.ndarray  # [D] float64, the leaves of the environment's discount; D is R or 1
    extras: packing.Rows
    next_observation: packing.Rows


class _Step(NamedTuple):
    observation: types.NestedArray
    action: types.NestedArray
    reward: types.NestedArray
    discount: types.NestedArray
    mask: Any
    extras: types.NestedArray


class _Signal(NamedTuple):
    reward: types.NestedArray
    discount: types.NestedArray


def _check_signal_specs(environment_spec: specs.EnvironmentSpec) -> None:
    rewards, discounts = environment_spec.rewards, environment_spec.discounts
    for name, nest in (("rewards", rewards), ("discounts", discounts)):
        for spec in tree.flatten(nest):
            if spec.shape:
                raise ValueError(
                    f"`{name}` must be scalars to be summed over steps, got {specs.describe(spec)}. Split "
                    "them into a nest of scalars in a wrapper of the environment."
                )
    if not isinstance(discounts, specs.Array):
        try:
            tree.assert_same_structure(rewards, discounts, check_types=False)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"`discounts` must be one scalar or a nest like that of the rewards {rewards}, got "
                f"{discounts}. Change one of them in a wrapper of the environment."
            ) from error
