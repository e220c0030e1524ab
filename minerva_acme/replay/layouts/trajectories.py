"""The layout of trajectories in replay, and the base class of layouts whose items are windows of rows."""

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import dm_env
import numpy as np
import torch
import tree

from minerva_acme import specs, types
from minerva_acme.replay import base, frames, packing

_FLOAT = specs.Array((), np.float32)
_REAL = np.float32(1.0)  # the mask of a step that happened
STATE_COLUMNS = "state/"  # begins the names of the columns of recurrent states

_Item = TypeVar("_Item")

PaddingFunction: TypeAlias = Callable[[tuple[int, ...], np.dtype[Any]], Any]
"""A function that makes an array of a given shape and dtype, such as `np.zeros`."""


class WindowLayout(abc.ABC, Generic[_Item]):
    """A layout whose items are windows of consecutive rows, the same rows in every column."""

    _batch_axis = 0  # of the tensors that `unpack` returns

    num_leading_rows = 0
    """The number of extra rows at the start of an item. The writer also adds them before the first row."""

    def __init__(self, packer: packing.RowPacker, num_rows: int, variable: bool = False) -> None:
        """Initialises the layout.

        Args:
            packer: The packer of a row.
            num_rows: The number of rows in an item.
            variable: Whether items may have fewer rows.
        """
        self._packer = packer
        self._columns = packer.columns
        self._num_rows = num_rows
        self._variable = variable

    @property
    def signature(self) -> base.ItemSignature:
        """The signature that the table must have."""
        fields = {name: base.FieldSpec(name, self._num_rows, self._variable) for name in self._columns}
        return base.ItemSignature(self._columns, fields)

    def fields(self, start: int, num_rows: int | None = None) -> dict[str, base.Window]:
        """Returns the fields of the item that starts at row `start`.

        Args:
            start: The first row, not counting leading rows.
            num_rows: The number of rows, not counting leading rows; None for the number in an item of full
                length.
        """
        length = self._num_rows if num_rows is None else num_rows + self.num_leading_rows
        return {name: base.Window(name, start, length) for name in self._columns}

    def item(self, rows: Sequence[packing.Rows]) -> _Item:
        """Returns the item made of these rows: the result of `unpack` as arrays, without the batch axis.

        Raises:
            ValueError: An item of variable length has more rows than the layout allows.
        """
        fields = {name: np.stack([row[name] for row in rows]) for name in self._columns}
        return packing.only_item(self.unpack, fields, self._batch_axis)

    @abc.abstractmethod
    def unpack(self, fields: Mapping[str, torch.Tensor]) -> _Item:
        """Returns items [B, rows, *row shape] as contiguous tensors, with a batch axis."""


class TrajectoryLayout(WindowLayout[types.Trajectory]):
    """A layout whose items are windows of T + 1 rows. Row t holds the data that arrived at time t.

        row            0      1      2      3
        observation    o_0    o_1    o_2    o_3
        action         0      a_0    a_1    a_2     the action that led to this row's observation
        reward         0      r_1    r_2    r_3
        discount       0      d_1    d_2    d_3
        mask           0      1      1      1
        extras         0      e_0    e_1    e_2     recorded when that action was chosen

    An item of T = 2 that starts at row 1 is `Trajectory(observation=[o_1, o_2, o_3], action=[a_1, a_2],
    reward=[r_2, r_3], ...)`. A row is complete when it arrives, so it is written at once.

    Rewards and discounts are stored as float32, whatever their dtypes in the environment; all other fields
    keep their dtypes.

    With `variable_length`, an item at the end of an episode may have fewer rows, but at least 2. `unpack`
    pads it, so that a learner always sees T transitions.

    With `frame_stack` k, observations are stacks of k frames, as `FrameStackWrapper` makes them, and a row
    holds only the newest frame. An item has k - 1 more rows, those before its first one, and `unpack` builds
    the stacks. If an episode began less than k frames ago, its stacks repeat its first frame.

        frames, k = 3         f_0        f_1        f_2        f_3
        stacks                0 0 0      0 0 1      0 1 2      1 2 3    f_0 is the first of its episode

    With `burn_in` b, an item has b more transitions before its T: those that came before in the episode, and
    where it began later, padding with its first observation and mask 0. A learner warms up a memory on them.

        b = 2, T = 2           item that starts at row 0    o_0 o_0 o_0 o_1 o_2         mask 0 0 1 1
                               item that starts at row 1    o_0 o_0 o_1 o_2 o_3         mask 0 1 1 1

    With a `state_spec`, the policy records its recurrent state with each action, as `state` of the extras.
    Only one state is stored for each item, in a column of its own: that before its first row.
    """

    def __init__(
        self,
        environment_spec: specs.EnvironmentSpec,
        sequence_length: int,
        extras_spec: types.NestedSpec = (),
        *,
        variable_length: bool = False,
        frame_stack: int = 1,
        padding_fn: PaddingFunction | None = None,
        burn_in: int = 0,
        state_spec: types.NestedSpec = (),
    ) -> None:
        """Plans the columns.

        Args:
            environment_spec: The specs of the environment as the actor sees it.
            sequence_length: The length T, in transitions; with `variable_length`, the maximum.
            extras_spec: The spec of the extras that the policy records with each action, where a recorded
                `state` is ().
            variable_length: Whether items may be stored with fewer than T transitions.
            frame_stack: The number of frames in an observation, the first axis of each leaf; with 1,
                observations are stored unchanged.
            padding_fn: The function that makes the padding after the end of an episode, from the shape and
                dtype of each leaf. None repeats the last observation, with 0 elsewhere. The mask is 0 there.
            burn_in: The number of transitions before the T, on which a learner warms up a memory.
            state_spec: The spec of the policy's recurrent state in one environment; () stores no state.

        Raises:
            ValueError: The length is below 1, `burn_in` is below 0, a field cannot be stored, or
                `padding_fn` is used with stacks.
        """
        if sequence_length < 1:
            raise ValueError(f"`sequence_length` must be >= 1 transition, got {sequence_length}.")
        if burn_in < 0:
            raise ValueError(f"`burn_in` must be >= 0 transitions, got {burn_in}.")
        if padding_fn is not None and frame_stack > 1:
            raise ValueError(
                f"`padding_fn` must be None with `frame_stack` above 1, got {padding_fn} and {frame_stack}. "
                "Stacks after the end of an episode repeat its last frame."
            )
        frame_spec = frames.frame_spec(environment_spec.observations, frame_stack)
        step_spec = _Step(
            observation=frame_spec,
            action=environment_spec.actions,
            reward=environment_spec.rewards,
            discount=environment_spec.discounts,
            mask=_FLOAT,
            extras=extras_spec,
            first=_FLOAT if frame_stack > 1 else (),
        )
        packer = packing.RowPacker(step_spec, single=("reward", "discount"), bounded=("discount",))
        super().__init__(packer, burn_in + sequence_length + frame_stack, variable_length)
        self._frame_stack = frame_stack
        self._burn_in = burn_in
        self._state = packing.RowPacker(state_spec, "state")
        self.no_state = {name: np.zeros(*spec) for name, spec in self.state_columns.items()}
        # The data that arrived with an item's first observation is not part of the item.
        arrived = ("action", "reward", "discount", "mask", "extras")
        self._left_out = dict.fromkeys(arrived, frame_stack)
        self.num_leading_rows = frame_stack - 1 + burn_in
        # A row begins with its observation, the first field, and ends with the mark of an episode's start.
        self._observation = packing.RowPacker(frame_spec, "observation")
        self._not_first = np.float32(0.0) if frame_stack > 1 else ()
        self._made_padding: packing.Rows | None = None
        if padding_fn is not None:
            made = tree.map_structure(lambda spec: padding_fn(spec.shape, spec.dtype), step_spec)
            self._made_padding = packer.pack(made._replace(mask=np.float32(0.0), first=()))

    @property
    def sequence_length(self) -> int:
        """The length T, in transitions, without the burn-in."""
        return self._num_rows - self._frame_stack - self._burn_in

    @property
    def burn_in(self) -> int:
        """The number of transitions before the T of an item."""
        return self._burn_in

    @property
    def state_columns(self) -> dict[str, base.ColumnSpec]:
        """The columns of which an item has one row, its recurrent state; empty if none is stored."""
        return {STATE_COLUMNS + name: column for name, column in self._state.columns.items()}

    @property
    def signature(self) -> base.ItemSignature:
        columns, fields = super().signature
        states = {name: base.FieldSpec(name, 1) for name in self.state_columns}
        return base.ItemSignature({**columns, **self.state_columns}, {**fields, **states})

    def fields(self, start: int, num_rows: int | None = None, state_row: int = 0) -> dict[str, base.Window]:
        """Returns an item's fields, as `WindowLayout.fields` does; `state_row` is the row of its state."""
        states = {name: base.Window(name, state_row, 1) for name in self.state_columns}
        return super().fields(start, num_rows) | states

    def item(self, rows: Sequence[packing.Rows], state: packing.Rows | None = None) -> types.Trajectory:
        """Returns the item of these rows, as `WindowLayout.item` does, with a packed state, or one of 0."""
        fields = {name: np.stack([row[name] for row in rows]) for name in self._columns}
        fields |= {name: row[None] for name, row in (self.no_state if state is None else state).items()}
        return packing.only_item(self.unpack, fields)

    @property
    def variable_length(self) -> bool:
        """True if items may be stored with fewer than T transitions."""
        return self._variable

    def first(self, observation: types.NestedArray) -> packing.Rows:
        """Returns the rows of an episode's first timestep.

        Raises:
            ValueError: A field does not match its spec, or a stack does not repeat one frame.
        """
        if self._frame_stack == 1:
            return self._only_observed(self._observation.pack(observation))
        rows = self._only_observed(self._observation.pack(frames.newest(observation)))
        frames.check_first(observation)
        rows["float32"][-1] = _REAL
        return rows

    def step(
        self, action: types.NestedArray, next_timestep: dm_env.TimeStep, extras: types.NestedArray = ()
    ) -> packing.Rows:
        """Returns the rows of a later timestep.

        Raises:
            ValueError: A field does not match its spec, or a discount is out of bounds.
        """
        observation = next_timestep.observation
        if self.no_state:
            extras = _check_state(extras)._replace(state=())
        return self._packer.pack(
            _Step(
                observation=observation if self._frame_stack == 1 else frames.newest(observation),
                action=action,
                reward=next_timestep.reward,
                discount=next_timestep.discount,
                mask=_REAL,
                extras=extras,
                first=self._not_first,
            )
        )

    def state(self, extras: types.NestedArray) -> packing.Rows:
        """Returns the rows of the recurrent state before a step, which its extras hold; {} if none is stored.

        Raises:
            ValueError: There is no state, or it does not match its spec.
        """
        if not self.no_state:
            return {}
        rows = self._state.pack(_check_state(extras).state)
        return {STATE_COLUMNS + name: row for name, row in rows.items()}

    def check_stack(self, observation: types.NestedArray, rows: Sequence[packing.Rows]) -> None:
        """Checks that a stack equals the one that `unpack` will build.

        Args:
            observation: The observation of a step.
            rows: The rows before the step, the newest last.

        Raises:
            ValueError: The stack contains other frames.
        """
        newest = len(rows) - 1
        for age in range(2, self._frame_stack + 1):
            frame = self._observation.pack(tree.map_structure(lambda leaf, age=age: leaf[-age], observation))
            row = rows[newest]
            frames.check_next(
                all(np.array_equal(row[name][: len(part)], part) for name, part in frame.items())
            )
            newest -= not row["float32"][-1]

    def padding(self, rows: packing.Rows) -> packing.Rows:
        """Returns the padding after an episode's last rows: the result of `padding_fn`, or without one the
        last observation, and 0 elsewhere."""
        return self._only_observed(rows) if self._made_padding is None else self._made_padding

    def _only_observed(self, rows: packing.Rows) -> packing.Rows:
        """Returns rows with the same observation, and 0 elsewhere."""
        padding = {name: np.zeros(*column) for name, column in self._columns.items()}
        for name, column in self._observation.columns.items():
            size = column.shape[0]
            padding[name][:size] = rows[name][:size]
        return padding

    def unpack(self, fields: Mapping[str, torch.Tensor]) -> types.Trajectory:
        """Returns B items [B, T + 1, *row shape] as contiguous tensors.

        Items of variable length may come as [B, L, *row shape] with L <= T + 1, padded with rows of 0.

        Raises:
            ValueError: Items of variable length are longer than T.
        """
        states = {name: fields[STATE_COLUMNS + name][:, 0] for name in self._state.columns}
        fields = {name: fields[name] for name in self._columns}
        if self._variable:
            fields = self._pad(fields)
        step: _Step = self._packer.unpack(fields, contiguous=True, left_out=self._left_out)
        observation, action, reward, discount, mask, extras, _ = step
        if self._frame_stack > 1:
            observation = self._stack(self._packer.unpack(fields))
        state = self._state.unpack(states, contiguous=True) if states else ()
        return types.Trajectory(observation, action, reward, discount, mask, extras, state)

    def _stack(self, step: "_Step") -> types.NestedTensor:
        """Builds stacks [B, T + 1, k, ...] from the frames of B items; padding repeats the last stack."""
        times = torch.arange(self._num_rows, device=step.mask.device)
        begin = (step.first.long() * times).cummax(1).values  # [B, T + k] the row at which its episode began
        happened = (step.mask + step.first > 0).long()
        newest = (happened * times).cummax(1).values[:, self._frame_stack - 1 :]  # [B, T + 1]
        ages = torch.arange(self._frame_stack - 1, -1, -1, device=times.device)
        rows = torch.maximum(newest[..., None] - ages, begin.gather(1, newest)[..., None])  # [B, T + 1, k]
        items = torch.arange(len(rows), device=times.device)[:, None, None]
        return tree.map_structure(lambda leaf: leaf[items, rows], step.observation)

    def _pad(self, fields: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Extends B items to T + 1 rows, with the rows of `padding` after the last step that happened."""
        mask = self._packer.unpack(fields).mask  # [B, L]
        batch_size, longest = mask.shape
        if longest > self._num_rows:  # A table of variable length takes items of any length.
            raise ValueError(
                "`sequence_length` must be >= the length of the items, "
                f"{longest - self._frame_stack} transitions, got {self.sequence_length}. "
                "Use layouts of the same length for writing and reading."
            )
        last = (mask * torch.arange(longest, device=mask.device)).amax(1).long()  # [B] the last row
        times = torch.arange(self._num_rows, device=mask.device)
        nearest = torch.minimum(times, last[:, None])  # [B, T + 1] the row whose observation is used
        items = torch.arange(batch_size, device=mask.device)[:, None]
        padded = {}
        for name, rows in fields.items():
            padded[name] = rows.new_zeros((batch_size, len(times), *rows.shape[2:]))
            padded[name][:, :longest] = rows
        if self._made_padding is not None:
            is_behind = times > last[:, None]  # [B, T + 1]
            for name, row in self._made_padding.items():
                padded[name][is_behind] = torch.from_numpy(row).to(padded[name])
            return padded
        for name, column in self._observation.columns.items():
            size = column.shape[0]
            padded[name][:, :, :size] = fields[name][items, nearest, :size]
        return padded


def _check_state(extras: types.NestedArray) -> Any:
    """Returns extras that hold a recurrent state.

    Raises:
        ValueError: They have no `state`.
    """
    if not (hasattr(extras, "_replace") and hasattr(extras, "state")):
        raise ValueError(
            "`extras` must be a named tuple with the policy's recurrent `state`, such as "
            f"`acting.BehaviourExtras`, got {type(extras).__name__}. Let the policy record it "
            "(`record_state` of `ModulePolicy`), or make the layout without `state_spec`."
        )
    return extras


class _Step(NamedTuple):
    observation: types.NestedArray
    action: types.NestedArray
    reward: types.NestedArray
    discount: types.NestedArray
    mask: Any
    extras: types.NestedArray
    first: Any
