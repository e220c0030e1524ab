"""The data types that pass between the parts.

A *nest* is any structure of tuples, named tuples, lists and dicts with arrays at its leaves, as
`dm-tree` understands it.
"""

from typing import Any, NamedTuple, TypeAlias

NestedArray: TypeAlias = Any
NestedTensor: TypeAlias = Any
NestedSpec: TypeAlias = Any


class Transition(NamedTuple):
    """One n-step transition, or a batch of them with a leading axis B.

    The reward is already summed and discounted over the n steps; the discount is the product of the
    environment's discounts and the algorithm's gamma over them, so that the bootstrap is always
    `reward + discount * value(next_observation)` and no flag marks the end of an episode.
    """

    observation: NestedArray  # [B, ...]  at t
    action: NestedArray  # [B, ...]  taken at t
    reward: NestedArray  # [B]  n-step return without its bootstrap
    discount: NestedArray  # [B]  0 at a true terminal, never 0 at a time limit
    next_observation: NestedArray  # [B, ...]  at t + n, the true last one at the end of an episode
    extras: NestedArray = ()  # [B, ...]  recorded by the behaviour policy at t


class Trajectory(NamedTuple):
    """T consecutive transitions of one episode, or a batch of them with a leading axis B.

    Step t is the transition from `observation[t]` by `action[t]` to `observation[t + 1]`. Steps
    after the end of an episode are padding: `mask` is 0 there, the observation repeats the last
    true one and the rest is 0. The discount is the environment's own: 0 only at a true terminal.

    With a burn-in, the first steps only warm up a memory and are in no loss. Where they lie before the
    beginning of the episode they are padding too: its first observation, and 0 elsewhere.
    """

    observation: NestedArray  # [B, T + 1, ...]
    action: NestedArray  # [B, T, ...]
    reward: NestedArray  # [B, T]
    discount: NestedArray  # [B, T]
    mask: NestedArray  # [B, T]  1 where the step happened, 0 where it is padding
    extras: NestedArray = ()  # [B, T, ...]
    state: NestedArray = ()  # [B, ...]  the policy's recurrent state before `observation[0]`, if stored


class Rollout(NamedTuple):
    """T consecutive steps of each of E environments, time first, across the ends of episodes.

    Step t is the transition from `observation[t]` by `action[t]` to `next_observation[t]`. At the end of an
    episode, that is the true last observation, not `observation[t + 1]`. The discount is the environment's
    own: 0 only at a true terminal. `last` only marks where traces must be cut, and `first` only where the
    recurrent state is reset.
    """

    observation: NestedArray  # [T, E, ...]
    action: NestedArray  # [T, E, ...]
    reward: NestedArray  # [T, E] float32
    discount: NestedArray  # [T, E] float32
    next_observation: NestedArray  # [T, E, ...]
    first: NestedArray  # [T, E] float32  1 where an episode begins with the observation
    last: NestedArray  # [T, E] float32  1 where no step of the same episode follows in the rollout
    return_so_far: (
        NestedArray  # [T, E] float32, as the reward  discounted sum of the episode's up to this one
    )
    extras: NestedArray = ()  # [T, E, ...]  recorded by the behaviour policy


class BatchedTimeStep(NamedTuple):
    """One timestep of each of B environments, as tensors on one device.

    The step type has dm_env's numbers: 0 FIRST, 1 MID, 2 LAST. At FIRST the reward is 0 and the discount 1,
    and both are ignored.
    """

    step_type: NestedTensor  # [B] uint8
    reward: NestedTensor  # [B] float32
    discount: NestedTensor  # [B] float32  0 at a true terminal, never 0 at a time limit
    observation: NestedTensor  # [B, ...]  what the step led to: at LAST, the true last one
    newest: NestedTensor  # [B, ...]  to act on: the same, or the first of the episode that began after LAST
