"""The layout of n-step transitions in replay."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import dm_env
import numpy as np
import torch
import tree

from minerva_acme import constraints, specs, types
from minerva_acme.replay import base, frames, packing


class TransitionLayout:
    """A layout whose items are single rows, each a whole n-step transition. Images are stored apart.

        column "float32"              o_t | a_t | reward | discount | o_{t+m} | e_t      row t
        column "observation/pixels"   o_t                                                row t

    A field that is an image is a row of its own column: row t for the observation, row t + m for the
    next one. So an image is stored only once, however many transitions contain it.

    With `frame_stack` k, images are stacks of k frames, as `FrameStackWrapper` makes them: a row of their
    column is one frame, and an item has the k frames up to its own. Other fields are stored as stacks.
    """

    def __init__(
        self,
        environment_spec: specs.EnvironmentSpec,
        extras_spec: types.NestedSpec = (),
        *,
        frame_stack: int = 1,
    ) -> None:
        """Plans the columns.

        Args:
            environment_spec: The specs of the environment as the actor sees it. Rewards and discounts are
                arrays that broadcast against each other, or nests of such arrays. If only one of the two
                is a nest, the other applies to each of its leaves.
            extras_spec: The spec of the extras that the policy records with each action.
            frame_stack: The number of frames in an observation, the first axis of each leaf; with 1,
                observations are stored unchanged.

        Raises:
            ValueError: A field cannot be stored, or rewards and discounts cannot be folded.
        """
        frames.frame_spec(environment_spec.observations, frame_stack)  # for its checks
        self._frame_stack = frame_stack
        self._signals = _plan_signals(environment_spec.rewards, environment_spec.discounts)
        self._observation = packing.RowPacker(environment_spec.observations, "observation")
        self._step = packing.step_packer(environment_spec, extras_spec)
        self._places = {field: self._step.places(field) for field in packing.Step._fields}
        rewards, discounts = (self._places[field]["float32"] for field in ("reward", "discount"))
        self._signal = slice(rewards.start, discounts.stop)
        self._transition = packing.RowPacker(
            types.Transition(
                observation=environment_spec.observations,
                action=environment_spec.actions,
                reward=self._signals.reward_spec,
                discount=self._signals.discount_spec,
                next_observation=environment_spec.observations,
                extras=extras_spec,
            )
        )
        self._images = [name for name, column in self._observation.columns.items() if len(column.shape) > 1]
        # Each field is in the column of its name, except that images of both observations share a column.
        next_images = {f"next_{name}": name for name in self._images}
        self._column_of = {field: next_images.get(field, field) for field in self._transition.columns}
        self._row_columns = [name for name in self._column_of.values() if name not in self._images]

    @property
    def signature(self) -> base.ItemSignature:
        """The signature that the table must have."""
        columns = {name: self._transition.columns[name] for name in self._column_of.values()}
        if self._frame_stack > 1:
            columns |= {
                name: base.ColumnSpec(columns[name].shape[1:], columns[name].dtype) for name in self._images
            }
        return base.ItemSignature(
            columns=columns,
            fields={
                field: base.FieldSpec(column, self._frame_stack if column in self._images else 1)
                for field, column in self._column_of.items()
            },
        )

    @property
    def num_leading_rows(self) -> int:
        """The number of copies of an episode's first image row to append before it."""
        return self._frame_stack - 1 if self._images else 0

    def max_window(self, n_step: int) -> int:
        """Returns how many rows the writer must keep for transitions of up to `n_step` steps."""
        return n_step + self._frame_stack if self._images else 1

    def first(self, observation: types.NestedArray) -> packing.Rows:
        """Returns an episode's first observation, packed, to be passed to `images` and `transition`.

        Raises:
            ValueError: A field does not match its spec, or a stack does not repeat one frame.
        """
        rows = self._observation.pack(observation)
        if self._frame_stack > 1:
            frames.check_first(observation)
        return rows

    def step(
        self, action: types.NestedArray, next_timestep: dm_env.TimeStep, extras: types.NestedArray = ()
    ) -> "PackedStep":
        """Returns an action and its results, packed.

        Raises:
            ValueError: A field does not match its spec, or a discount is out of bounds.
        """
        rows = self._step.pack(
            packing.Step(
                next_timestep.observation, action, next_timestep.reward, next_timestep.discount, extras
            )
        )
        signal = rows["float32"][self._signal].astype(np.float64)  # to be summed
        return PackedStep(
            action=packing.take(rows, self._places["action"]),
            rewards=signal[self._signals.rewards],
            discounts=signal[self._signals.discounts],
            extras=packing.take(rows, self._places["extras"]),
            next_observation=packing.take(rows, self._places["observation"]),
        )

    def check_stack(self, before: packing.Rows, after: packing.Rows) -> None:
        """Checks that the image stacks equal those that `unpack` will build.

        Args:
            before: An observation, packed.
            after: The next observation, packed.

        Raises:
            ValueError: A stack does not continue the one before it.
        """
        if self._frame_stack > 1:
            frames.check_next(
                all(np.array_equal(before[name][1:], after[name][:-1]) for name in self._images)
            )

    def fold(self, steps: "Sequence[PackedStep]", gamma: float) -> tuple[np.ndarray, np.ndarray]:
        """Folds consecutive steps into one reward and one discount.

        With m steps k = 0 .. m-1, for each element of the reward and the element of the discount that
        it broadcasts against:

            reward   = sum_k  gamma^k * d_0 * ... * d_{k-1} * r_k
            discount = gamma^m * d_0 * ... * d_{m-1}

        Args:
            steps: The steps to fold, at least one.
            gamma: The algorithm's discount, per step.

        Returns:
            The reward [R] and the discount [D] in float64, to be passed to `transition`.
        """
        reward = steps[0].rewards
        discount = gamma * steps[0].discounts
        for step in steps[1:]:
            reward = reward + discount[self._signals.discount_of_reward] * step.rewards
            discount = discount * gamma * step.discounts
        return reward, discount

    def is_large(self, step: "PackedStep", num_steps: int) -> bool:
        """Returns whether rewards as large as a step's, over `num_steps` steps, may sum beyond the limit.

        The limit is `constraints.LARGEST`, and the discounts are assumed to be at most 1.
        """
        return bool(specs.square(step.rewards) > (constraints.LARGEST / num_steps) ** 2)

    def images(self, observation: packing.Rows) -> packing.Rows:
        """Returns the rows to append for each observation of an episode; none if there are no images."""
        if not self._images:  # the usual case
            return {}
        stacks = {name: observation[name] for name in self._images}
        return stacks if self._frame_stack == 1 else {name: stack[-1] for name, stack in stacks.items()}

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
            observation: The observation at t, packed.
            step: The step from t.
            reward: The reward [R], folded over the steps by `fold`.
            discount: The discount [D], folded likewise.
            next_observation: The observation at the end of the last step, packed.

        Raises:
            ValueError: A folded reward is beyond `constraints.LARGEST`.
        """
        folded = np.concatenate([reward, discount])
        if not specs.square(folded) <= constraints.LARGEST:  # It may be too large.
            with np.errstate(over="ignore"):
                is_storable = packing.is_storable(folded.astype(np.float32))
            if not is_storable:
                raise ValueError(
                    f"The rewards of several steps sum to {reward}, beyond {constraints.LARGEST:g}. Clip "
                    "them or scale them down in a wrapper of the environment."
                )
        folded = folded.astype(np.float32)
        # In the order of the fields of `types.Transition`.
        parts = [observation, step.action, {"float32": folded}, next_observation, step.extras]
        return packing.join(parts, self._row_columns)

    def fields(self, row: int, start: int, end: int) -> dict[str, base.Window]:
        """Returns the fields of a transition's item.

        Args:
            row: The number of transitions appended before it in this episode.
            start: The time of its observation.
            end: The time of its next observation.
        """
        windows = {}
        for field, column in self._column_of.items():
            place, length = row, 1
            if column in self._images:
                place, length = start if column == field else end, self._frame_stack
            windows[field] = base.Window(column, place, length)
        return windows

    def item(
        self, rows: packing.Rows, observation: packing.Rows, next_observation: packing.Rows
    ) -> types.Transition:
        """Returns the item of a transition's rows: the result of `unpack` as arrays, without a batch axis."""
        fields = {name: row[None] for name, row in rows.items()}
        for name in self._images:
            for field, image in ((name, observation[name]), (f"next_{name}", next_observation[name])):
                fields[field] = image[None] if self._frame_stack == 1 else image
        return packing.only_item(self.unpack, fields)

    def unpack(self, fields: Mapping[str, torch.Tensor]) -> types.Transition:
        """Returns B items [B, 1, *row shape] as contiguous tensors [B, ...]."""
        is_stack = self._frame_stack > 1
        transition: types.Transition = self._transition.unpack(
            {
                field: rows if is_stack and self._column_of[field] in self._images else rows[:, 0]
                for field, rows in fields.items()
            },
            contiguous=True,
        )
        return transition


class PackedStep(NamedTuple):
    """An action and its results, packed."""

    action: packing.Rows
    rewards: np.ndarray  # [R] float64, the elements of the reward, broadcast against the discount
    discounts: np.ndarray  # [D] float64, the elements of the environment's discount
    extras: packing.Rows
    next_observation: packing.Rows


class _Signals(NamedTuple):
    """The plan for folding rewards and discounts as two flat vectors, [R] and [D]."""

    reward_spec: types.NestedSpec  # of the folded reward
    discount_spec: types.NestedSpec
    rewards: np.ndarray  # [R] indices into the packed signal
    discounts: slice  # [D] the part of the packed signal
    discount_of_reward: np.ndarray  # [R] indices into [D]


def _plan_signals(rewards: types.NestedSpec, discounts: types.NestedSpec) -> _Signals:
    for name, nest in (("rewards", rewards), ("discounts", discounts)):
        for spec in tree.flatten(nest):
            if len(spec.shape) > 2:
                raise ValueError(
                    f"`{name}` must have at most two axes to be folded over steps, got "
                    f"{specs.describe(spec)}. Flatten them in a wrapper of the environment."
                )
    if not isinstance(rewards, specs.Array) and not isinstance(discounts, specs.Array):
        if _paths(rewards) != _paths(discounts):
            raise ValueError(
                f"`discounts` must be one array or a nest with the structure of the rewards {rewards}, got "
                f"{discounts}. Change one of them in a wrapper of the environment."
            )
    # The reward gets the structure of the larger of the two nests; the discount keeps its own.
    structure = discounts if isinstance(rewards, specs.Array) else rewards
    leaves = [*tree.flatten(rewards), *tree.flatten(discounts)]
    stops = np.cumsum([int(np.prod(leaf.shape)) for leaf in leaves])
    starts = [0, *stops[:-1]]
    # The place of each element of a leaf in the packed signal.
    places = [
        np.arange(start, stop).reshape(leaf.shape)
        for start, stop, leaf in zip(starts, stops, leaves, strict=True)
    ]
    num_rewards = len(tree.flatten(rewards))
    of_rewards, of_discounts = places[:num_rewards], places[num_rewards:]
    broadcast = []
    for i in range(len(tree.flatten(structure))):
        reward, discount = of_rewards[i % len(of_rewards)], of_discounts[i % len(of_discounts)]
        try:
            broadcast.append(np.broadcast_arrays(reward, discount))
        except ValueError as error:
            raise ValueError(
                "`rewards` and `discounts` must broadcast against each other, got shapes "
                f"{reward.shape} and {discount.shape}. Change one of them in a wrapper of the environment."
            ) from error
    first_discount = int(starts[num_rewards])
    # Sums of discounted rewards are floats, whatever the rewards are.
    folded = [specs.Array(reward.shape, np.float32) for reward, _ in broadcast]
    return _Signals(
        reward_spec=tree.unflatten_as(structure, folded),
        discount_spec=tree.map_structure(lambda leaf: specs.Array(leaf.shape, np.float32), discounts),
        rewards=np.concatenate([reward.ravel() for reward, _ in broadcast]),
        discounts=slice(first_discount, None),
        discount_of_reward=np.concatenate([discount.ravel() for _, discount in broadcast]) - first_discount,
    )


def _paths(nest: types.NestedSpec) -> list[tuple[Any, ...]]:
    return [path for path, _ in tree.flatten_with_path(nest)]
