"""The layout of on-policy rollouts in replay."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import dm_env
import numpy as np
import torch
import tree

from minerva_acme import constraints, specs, types
from minerva_acme.replay import packing
from minerva_acme.replay.layouts import trajectories

_FLOAT = specs.Array((), np.float32)


class RolloutLayout(trajectories.WindowLayout[types.Rollout]):
    """A layout whose items are windows of T rows. Each row is a whole transition, so an item has T steps.

        column "float32"                   first | return so far | o_t | o_{t+1} | a_t | r_t | d_t | e_t
        column "observation/pixels"        o_t
        column "next_observation/pixels"   o_{t+1}

    Both observations are stored, since the next row may belong to another episode. `first` is 1 if the step
    is the first of its episode. A row cannot say that it is the last, since `reset` may end an episode
    later. A learner takes one item from each of E environments. Rewards and discounts are stored as
    float32, whatever their dtypes in the environment; all other fields keep their dtypes. Rewards may be a
    dict of numbers; the return so far is then one too.
    """

    _batch_axis = 1

    def __init__(
        self,
        environment_spec: specs.EnvironmentSpec,
        rollout_length: int,
        extras_spec: types.NestedSpec = (),
    ) -> None:
        """Plans the columns.

        Args:
            environment_spec: The specs of the environment as the actor sees it.
            rollout_length: The length T, in steps of one environment.
            extras_spec: The spec of the extras that the policy records with each action.

        Raises:
            ValueError: The length is below 1, rewards or discounts are not one number per step (rewards may
                also be a dict of numbers), or a field cannot be stored.
        """
        if rollout_length < 1:
            raise ValueError(f"`rollout_length` must be >= 1 step, got {rollout_length}.")
        rewards, discounts = environment_spec.rewards, environment_spec.discounts
        if not specs.are_numbers(rewards):
            raise ValueError(
                "`rewards` must be one number per step, or a dict of these, for rollouts, got "
                f"{_describe(rewards)}. `wrappers.NamedRewardsWrapper` gives each its name."
            )
        if not specs.is_number(discounts):
            raise ValueError(
                f"`discounts` must be one number per step for rollouts, got {_describe(discounts)}. Reduce "
                "them in a wrapper of the environment."
            )
        self.reward_spec = environment_spec.rewards
        observations = environment_spec.observations
        self._observation = packing.RowPacker(observations, "observation")
        self._step = packing.step_packer(environment_spec, extras_spec)
        # In the order in which `transition` joins the parts.
        row = packing.RowPacker(
            _Row(
                first=_FLOAT,
                return_so_far=tree.map_structure(lambda _: _FLOAT, environment_spec.rewards),
                observation=observations,
                next_observation=observations,
                action=environment_spec.actions,
                reward=environment_spec.rewards,
                discount=environment_spec.discounts,
                extras=extras_spec,
            ),
            single=("reward", "discount"),
        )
        super().__init__(row, rollout_length)
        columns = self._observation.columns
        self._next_images = {name: f"next_{name}" for name in columns if len(columns[name].shape) > 1}
        self._observation_sizes = {name: column.shape[0] for name, column in columns.items()}

    @property
    def rollout_length(self) -> int:
        """The length T of a rollout, in steps of one environment."""
        return self._num_rows

    def first(self, observation: types.NestedArray) -> packing.Rows:
        """Returns an episode's first observation, packed, to be passed to `transition`."""
        return self._observation.pack(observation)

    def step(
        self, action: types.NestedArray, next_timestep: dm_env.TimeStep, extras: types.NestedArray = ()
    ) -> packing.Rows:
        """Returns an action and its results, packed, to be passed to `transition`.

        Raises:
            ValueError: A field does not match its spec, or the discount is out of bounds.
        """
        return self._step.pack(
            packing.Step(
                next_timestep.observation, action, next_timestep.reward, next_timestep.discount, extras
            )
        )

    def next_observation(self, step: packing.Rows) -> packing.Rows:
        """Returns the observation that a step ended with, packed, without a copy."""
        # A packed step begins with its observation.
        return {name: step[name][:size] for name, size in self._observation_sizes.items()}

    def transition(
        self, *, observation: packing.Rows, step: packing.Rows, first: bool, return_so_far: types.NestedArray
    ) -> packing.Rows:
        """Returns the rows of a transition.

        Args:
            observation: The observation at t, packed.
            step: The step from t, packed, as `step` returns it.
            first: Whether the episode began with `observation`.
            return_so_far: The discounted sum of the episode's rewards, including this step's, by reward.

        Raises:
            ValueError: The sum is beyond `constraints.LARGEST`.
        """
        sums = [return_so_far] if isinstance(return_so_far, float) else tree.flatten(return_so_far)
        if not all(abs(total) <= constraints.LARGEST for total in sums):
            raise ValueError(
                f"The rewards of an episode sum to {return_so_far}, beyond {constraints.LARGEST:g}. Clip "
                "them or scale them down in a wrapper of the environment."
            )
        marks = {"float32": np.array([first, *sums], np.float32)}
        if self._next_images:
            step = {self._next_images.get(name, name): row for name, row in step.items()}
        return packing.join([marks, observation, step], self._columns)

    def unpack(self, fields: Mapping[str, torch.Tensor]) -> types.Rollout:
        """Returns E items [E, T, *row shape] as contiguous tensors [T, E, ...]."""
        rows = {name: rows.transpose(0, 1) for name, rows in fields.items()}
        row: _Row = self._packer.unpack(rows, contiguous=True)
        last = torch.ones_like(row.first)
        last[:-1] = row.first[1:]
        return types.Rollout(**row._asdict(), last=last)


def _describe(spec: types.NestedSpec) -> Any:
    return specs.describe(spec) if isinstance(spec, specs.Array) else spec


class _Row(NamedTuple):
    first: Any
    return_so_far: types.NestedArray
    observation: types.NestedArray
    next_observation: types.NestedArray
    action: types.NestedArray
    reward: types.NestedArray
    discount: Any
    extras: types.NestedArray
