"""Encoders with a memory, and the sequences that they encode.

Shapes: B sequences; T transitions, so T + 1 observations; b of them burn-in; H features out of the memory.
"""

from typing import NamedTuple

import torch
import tree

from minerva_acme import types
from minerva_acme.networks.encoders import Encoder
from minerva_acme.networks.memory import Memory, MemoryState, Past


class Sequences(NamedTuple):
    """Consecutive observations, for a module with a `RecurrentEncoder`, and what came before them."""

    observation: types.NestedTensor  # [B, T + 1, ...]
    past: Past  # with its `start` time first, [T + 1, B]

    def first(self, num_states: int) -> "Sequences":
        """Returns the sequences up to the first observations after the burn-in."""
        end = self.past.burn_in + num_states
        observation = tree.map_structure(lambda leaf: leaf[:, :end], self.observation)
        return Sequences(observation, self.past._replace(start=self.past.start[:end]))


def sequences(trajectory: types.Trajectory, burn_in: int = 0) -> Sequences:
    """Returns the observations of trajectories, with the states from which a memory starts.

    It starts from the stored states, or from the initial one where none are stored. After a masked step, such
    as those before an episode or between two episodes, the next step is the first of an episode and the state
    the initial one. So nothing in masked steps has an effect on any other step.

    Args:
        trajectory: The trajectories, with the batch first.
        burn_in: The number of first steps, b, that only warm up the memory.

    Raises:
        ValueError: `burn_in` leaves no step to learn from.
    """
    happened = trajectory.mask > 0  # [B, T]
    if not 0 <= burn_in < happened.shape[1]:
        raise ValueError(
            f"`burn_in` must be >= 0 and < the {happened.shape[1]} steps of a trajectory, got {burn_in}. The "
            "layout's `burn_in` steps come before the `sequence_length` that are learned from."
        )
    begins = ~happened[:, :-1] & happened[:, 1:]
    start = torch.nn.functional.pad(begins.to(trajectory.mask.dtype), (1, 1))  # [B, T + 1]
    return Sequences(trajectory.observation, Past(trajectory.state, start.T, burn_in))


class RecurrentEncoder(Encoder):
    """An encoder with a memory behind it, which encodes sequences instead of single observations."""

    def __init__(self, encoder: Encoder, memory: Memory) -> None:
        """Takes both.

        Args:
            encoder: The encoder of single observations, [..., *] -> [..., F].
            memory: The memory, which takes its features.
        """
        super().__init__()
        self.encoder = encoder
        self.memory = memory
        self.output_size = memory.output_size

    def forward(self, steps: Sequences) -> torch.Tensor:
        """Encodes the observations after the burn-in, through which no gradient flows: [B, T + 1 - b, H]."""
        observation, past = steps
        features = self.encoder(tree.map_structure(lambda leaf: leaf[:, past.burn_in :], observation))
        if past.burn_in:
            with torch.no_grad():
                first = self.encoder(tree.map_structure(lambda leaf: leaf[:, : past.burn_in], observation))
            features = torch.cat([first, features], dim=1)
        return self.memory.recall(features.transpose(0, 1), past).transpose(0, 1)

    def remember(
        self, observation: types.NestedTensor, state: MemoryState
    ) -> tuple[torch.Tensor, MemoryState]:
        """Makes one step of the memory.

        Args:
            observation: The observation, leaves [E, ...].
            state: The memory's state before it, [E, ...] each.

        Returns:
            Features [E, H], and the state after the step.
        """
        remembered, state = self.memory.unroll(self.encoder(observation)[None], state)
        return remembered[0], state
