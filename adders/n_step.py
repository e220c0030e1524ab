"""Transitions folded over n steps."""

from collections.abc import Sequence
from typing import NamedTuple

import dm_env
import numpy as np

from minerva_acme import types
from minerva_acme.adders import base
from minerva_acme.replay import base as replay
from minerva_acme.replay import layouts, packing


class NStepTransitionAdder(base.EpisodeAdder):
    """Writes one transition for every step of an episode, over the n steps that start there.

    An episode of 4 steps, with n = 3. A line is an item: from its first observation to its last.

        FIRST  MID  MID  MID  LAST
        o_0    o_1  o_2  o_3  o_4
        [=================]         written when o_3 arrives
               [================]   written when o_4 arrives
                    [===========]   over 2 steps, written because the episode ends
                         [======]   over 1 step, likewise

    With r_k, d_k the reward and the environment's discount of an item's m steps (k = 0 .. m-1):

        reward   = sum_k  gamma^k * d_0 * ... * d_{k-1} * r_k
        discount = gamma^m * d_0 * ... * d_{m-1}

    so that `reward + discount * value(next_observation)` is the target whatever m is, and gamma is
    not applied again. (In Acme the discount holds gamma^(m-1), and the learner multiplies by the
    last gamma.)

    Termination: d of the last step is 0, so the discount of every item that ends there is 0.
    Truncation, by the environment or by `reset`: the last step keeps the discount that came with it,
    and the last three items bootstrap from o_4, the true last observation.

    Every step is the first of exactly one item. No item reaches into another episode.
    """

    def __init__(
        self,
        *,
        client: replay.ReplayClient,
        table: str,
        layout: layouts.TransitionLayout,
        n_step: int,
        discount: float,
        priority: float = 1.0,
    ) -> None:
        """Initialises; nothing is asked of the client before the first episode.

        Args:
            client: of the store that holds the table.
            table: the table's name; its signature is the layout's.
            layout: how transitions lie in replay.
            n_step: steps that a transition is folded over, fewer at the end of an episode.
            discount: gamma, per step, in [0, 1].
            priority: of each new item.

        Raises:
            ValueError: a number is out of its range.
        """
        if n_step < 1:
            raise ValueError(f"`n_step` must be >= 1, got {n_step}.")
        if not 0.0 <= discount <= 1.0:
            raise ValueError(f"`discount` must be in [0, 1], got {discount}.")
        super().__init__(client=client, table=table, max_window=layout.max_window(n_step), priority=priority)
        self._layout = layout
        self._n_step = n_step
        self._gamma = discount
        self._num_steps = 0  # of this episode
        self._observation: packing.Rows = {}  # the newest
        self._started: list[_Started] = []  # steps whose items are not written yet, oldest first

    def _write_first(self, writer: replay.Writer, timestep: dm_env.TimeStep) -> None:
        observation = self._layout.first(timestep.observation)
        self._num_steps, self._started = 0, []
        self._append_observation(writer, observation)

    def _write_step(
        self,
        writer: replay.Writer,
        action: types.NestedArray,
        next_timestep: dm_env.TimeStep,
        extras: types.NestedArray,
    ) -> None:
        step = self._layout.step(action, next_timestep, extras)
        started = [*self._started, _Started(self._observation, step)]
        if next_timestep.last():
            num_due = len(started)
        else:
            num_due = 1 if len(started) == self._n_step else 0
        due = [self._fold(started[first:]) for first in range(num_due)]
        # Nothing is refused from here on.
        self._started = started
        self._num_steps += 1
        self._append_observation(writer, step.next_observation)
        self._write_transitions(writer, due)

    def _write_end(self, writer: replay.Writer) -> None:
        due = [self._fold(self._started[first:]) for first in range(len(self._started))]
        self._write_transitions(writer, due)

    def _fold(self, steps: "Sequence[_Started]") -> packing.Rows:
        """The transition over all of `steps`."""
        reward, discount = np.zeros(1), np.ones(1)  # [R] and [D], broadcast by the first step
        for _, step in steps:
            reward = reward + discount * step.rewards
            discount = discount * self._gamma * step.discounts
        return self._layout.transition(
            observation=steps[0].observation,
            step=steps[0].step,
            reward=reward,
            discount=discount,
            next_observation=steps[-1].step.next_observation,
        )

    def _append_observation(self, writer: replay.Writer, observation: packing.Rows) -> None:
        self._observation = observation
        images = self._layout.images(observation)
        if images:
            writer.append(images)

    def _write_transitions(self, writer: replay.Writer, due: Sequence[packing.Rows]) -> None:
        for rows in due:
            start = self._num_steps - len(self._started)
            del self._started[0]
            writer.append(rows)
            self._create_item(writer, self._layout.fields(start, end=self._num_steps))


class _Started(NamedTuple):
    """The first step of a transition to be."""

    observation: packing.Rows
    step: layouts.PackedStep
