"""An adder of n-step transitions."""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import dm_env

from minerva_acme.adders import base
from minerva_acme.replay import base as replay
from minerva_acme.replay import layouts, packing


class NStepTransitionAdder(base.BaseAdder):
    """Writes one transition for every step of an episode, over the n steps that start there.

    The drawing shows an episode of 4 steps, with n = 3. Each line is an item, from its first observation
    to its last.

        FIRST  MID  MID  MID  LAST
        o_0    o_1  o_2  o_3  o_4
        [======]                    only with `shorter_at_start`, written when o_1 arrives
        [===========]               same, written when o_2 arrives
        [=================]         written when o_3 arrives
               [================]   written when o_4 arrives
                    [===========]   over 2 steps, written because the episode ends
                         [======]   over 1 step, same

    With r_k and d_k the rewards and the environment's discounts of an item's m steps (k = 0 .. m-1):

        reward   = sum_k  gamma^k * d_0 * ... * d_{k-1} * r_k
        discount = gamma^m * d_0 * ... * d_{m-1}

    so that `reward + discount * value(next_observation)` is the target for every m, and gamma is not
    applied again. (In Acme the discount includes gamma^(m-1), and the learner multiplies by the last
    gamma.) Reward and discount broadcast against each other: a vector of rewards with one discount is
    folded element by element. So is one reward with one discount per objective; the folded reward then
    has one element per objective.

    Termination: the last step's d is 0, so the discount of every item that ends there is 0.
    Truncation, by the environment or by `reset`: the last step keeps the discount that came with it,
    and the last three items bootstrap from o_4, the true last observation.

    Every step is the first of exactly one item. With `shorter_at_start`, as in Acme, an episode's first
    step is the first of up to n items. An item has the action and extras of its first step. No item
    continues into another episode.
    """

    def __init__(
        self,
        *,
        client: replay.ReplayClient,
        table: str | Mapping[str, base.Priority],
        layout: layouts.TransitionLayout,
        n_step: int,
        discount: float,
        shorter_at_start: bool = False,
        priority: base.Priority = 1.0,
    ) -> None:
        """Initialises the adder. The client is not used before the first episode.

        Args:
            client: The client of the store that holds the tables.
            table: The name of a table, or the names of several with the priority of items in each. The
                tables must have the layout's signature.
            layout: The layout of transitions in replay.
            n_step: The number of steps that a transition is folded over, fewer at the end of an episode.
            discount: The discount gamma, per step, in [0, 1].
            shorter_at_start: Whether to begin an episode with the transitions from its first step over
                1, 2, ..., n - 1 steps, as Acme does.
            priority: The priority of each new item, if `table` is one name.

        Raises:
            ValueError: A number is out of its range.
        """
        if n_step < 1:
            raise ValueError(f"`n_step` must be >= 1, got {n_step}.")
        if not 0.0 <= discount <= 1.0:
            raise ValueError(f"`discount` must be in [0, 1], got {discount}.")
        super().__init__(
            client=client,
            table=table,
            priority=priority,
            signature=layout.signature,
            max_window=layout.max_window(n_step),
        )
        self._layout = layout
        self._n_step = n_step
        self._gamma = discount
        self._shorter_at_start = shorter_at_start
        self._num_steps = 0  # of this episode
        self._num_transitions = 0  # written in this episode
        self._observation: packing.Rows = {}  # the newest
        self._started: list[_Started] = []  # steps at which transitions may still start, oldest first
        self._is_oldest_written = False  # over all steps so far
        self._last_large = -n_step  # the newest step whose rewards may sum to more than is allowed

    def write_first(self, writer: replay.Writer, timestep: dm_env.TimeStep) -> None:
        observation = self._layout.first(timestep.observation)
        self._num_steps, self._num_transitions = 0, 0
        self._started, self._is_oldest_written = [], False
        self._last_large = -self._n_step
        for _ in range(self._layout.num_leading_rows):
            self._append_observation(writer, observation)
        self._append_observation(writer, observation)

    def write_step(self, writer: replay.Writer, step: base.Step) -> None:
        is_last = step.next_timestep.last()
        packed = self._layout.step(*step)
        self._layout.check_stack(self._observation, packed.next_observation)
        started = [*self._started, _Started(self._observation, packed)]
        is_full = len(started) == self._n_step
        num_due = len(started) if is_last else int(is_full or self._shorter_at_start)
        due = self._fold(started, num_due)
        last_large = self._num_steps if self._layout.is_large(packed, self._n_step) else self._last_large
        if self._num_steps - last_large < self._n_step:
            # Folds what `reset` would write later, to reject the step now if that would fail.
            for first in range(len(started)):
                self._fold_rows(started[first:])
        # Nothing is rejected from here on.
        self._last_large = last_large
        self._started, self._is_oldest_written = started, False
        self._num_steps += 1
        self._append_observation(writer, packed.next_observation)
        self._write_transitions(writer, due, is_full=is_full or is_last)

    def write_end(self, writer: replay.Writer) -> None:
        if self._is_oldest_written:
            del self._started[0]
            self._is_oldest_written = False
        due = self._fold(self._started, len(self._started))
        self._write_transitions(writer, due, is_full=True)
        writer.end_episode()

    def _fold(self, started: "Sequence[_Started]", num_due: int) -> "list[_Due]":
        """Returns the transitions that start at the oldest `num_due` steps and span all later ones."""
        next_observation = started[-1].step.next_observation if started else {}
        due = []
        for first, (observation, _) in enumerate(started[:num_due]):
            rows = self._fold_rows(started[first:])
            item = functools.partial(self._layout.item, rows, observation, next_observation)
            due.append(_Due(rows, self.priorities_of(item)))
        return due

    def _fold_rows(self, steps: "Sequence[_Started]") -> packing.Rows:
        reward, discount = self._layout.fold([step for _, step in steps], self._gamma)
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

    def _write_transitions(self, writer: replay.Writer, due: "Sequence[_Due]", is_full: bool) -> None:
        """Writes the transitions of the oldest steps; with `is_full`, no more will start at these steps."""
        for rows, priorities in due:
            start = self._num_steps - len(self._started)
            fields = self._layout.fields(row=self._num_transitions, start=start, end=self._num_steps)
            if is_full:
                del self._started[0]
            else:
                self._is_oldest_written = True
            writer.append(rows)
            self._num_transitions += 1
            self.create_items(writer, fields, priorities)


class _Started(NamedTuple):
    """The first step of a future transition."""

    observation: packing.Rows
    step: layouts.PackedStep


class _Due(NamedTuple):
    """A transition to be written, and its priority in each table."""

    rows: packing.Rows
    priorities: dict[str, float]
