"""The memory of a network: recurrent layers between an encoder and torsos.

Shapes: T steps; E environments; F features into the memory; H features out of it; n = T * E.
"""

import abc
import itertools
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import torch
from torch import nn

from minerva_acme.networks import linear

Kind: TypeAlias = Literal["lstm", "gru"]
MemoryState: TypeAlias = tuple[torch.Tensor, ...]
"""The state for E episodes, tensors [E, ...]."""


class Past(NamedTuple):
    """The context of T steps of E environments: the state before them, and where episodes begin."""

    state: MemoryState  # [E, ...] each  the memory's state before the first step; () for the initial one
    start: torch.Tensor  # [T, E]  1 where an episode begins: the state before that step is not used
    burn_in: int = 0  # number of first steps that only warm up the state, without output or gradient


class Memory(nn.Module, abc.ABC):
    """A recurrent layer that starts from its initial state wherever an episode begins.

    A subclass defines `initial_state` and `unroll`, which does not handle episodes, and sets `output_size`.
    """

    output_size: int
    """H."""

    @abc.abstractmethod
    def initial_state(self, num_environments: int) -> MemoryState:
        """Returns the state at the beginning of an episode, float32 [E, ...] each."""

    @abc.abstractmethod
    def unroll(self, features: torch.Tensor, state: MemoryState) -> tuple[torch.Tensor, MemoryState]:
        """Processes steps of one episode in each environment.

        Args:
            features: The input features, [T, E, F].
            state: The state before the first step, [E, ...] each.

        Returns:
            Features [T, E, H] and the state after the last step, [E, ...] each.
        """

    def forward(
        self, features: torch.Tensor, state: MemoryState, start: torch.Tensor
    ) -> tuple[torch.Tensor, MemoryState]:
        """Processes steps across the ends of episodes, with one `unroll` from each beginning to the next.

        Args:
            features: The input features, [T, E, F].
            state: The state before the first step, [E, ...] each.
            start: [T, E], 1 where an episode begins: the state is reset to the initial one before that step.

        Returns:
            Features [T, E, H] and the state after the last step, [E, ...] each.
        """
        begins = start > 0
        initial = self._initial_state_like(features)
        times = [t for t, any_begins in enumerate(begins.any(dim=1).tolist()) if any_begins and t > 0]
        outputs = []
        for t, end in itertools.pairwise([0, *times, len(start)]):
            state = tuple(
                torch.where(begins[t].view(-1, *[1] * (kept.ndim - 1)), new, kept)
                for new, kept in zip(initial, state, strict=True)
            )
            output, state = self.unroll(features[t:end], state)
            outputs.append(output)
        return torch.cat(outputs), state

    def recall(self, features: torch.Tensor, past: Past) -> torch.Tensor:
        """Processes steps that follow a past; no gradient flows through its burn-in.

        Args:
            features: The input features, [T, E, F].
            past: The state before them, where episodes begin, and the number of burn-in steps.

        Returns:
            Features after the burn-in, [T - burn_in, E, H].
        """
        state, start, burn_in = past
        state = state or self._initial_state_like(features)
        if burn_in:
            with torch.no_grad():
                _, state = self(features[:burn_in], state, start[:burn_in])
        remembered, _ = self(features[burn_in:], state, start[burn_in:])
        return remembered

    def _initial_state_like(self, features: torch.Tensor) -> MemoryState:
        """The initial states of the environments of features [T, E, F], on their device."""
        return tuple(part.to(features.device) for part in self.initial_state(features.shape[1]))


class LSTM(Memory):
    """One layer of LSTM units. Its state is (hidden [E, H], cell [E, H]).

    The forget gates start with a bias of 1, so that they keep 73 % of the cell at each step, and gradients
    reach far back. With a bias of 0 they would keep 50 %.

    Sources: Hochreiter and Schmidhuber 1997, "Long short-term memory"; Gers et al. 2000, "Learning to
    forget"; for the bias Jozefowicz et al. 2015, "An empirical exploration of recurrent network
    architectures".
    """

    def __init__(self, input_size: int, size: int, *, generator: torch.Generator | None = None) -> None:
        """Makes the layer.

        Args:
            input_size: The number of input features, F.
            size: The number of output features, H.
            generator: The generator for the initial weights; None uses torch's global generator.
        """
        super().__init__()
        self.rnn = _orthogonal(nn.LSTM, input_size, size, generator)
        bias = self.rnn.get_parameter("bias_ih_l0").detach()  # of the gates input, forget, cell, output
        nn.init.ones_(bias[size : 2 * size])
        self.output_size = size

    def initial_state(self, num_environments: int) -> MemoryState:
        zeros = next(self.parameters()).new_zeros(num_environments, self.output_size)
        return zeros, zeros.clone()

    def unroll(self, features: torch.Tensor, state: MemoryState) -> tuple[torch.Tensor, MemoryState]:
        hidden, cell = (part[None].contiguous() for part in state)
        output, (hidden, cell) = self.rnn(features, (hidden, cell))
        return output, (hidden[0], cell[0])


class GRU(Memory):
    """One layer of gated recurrent units. Its state is (hidden [E, H],).

    Source: Cho et al. 2014, "Learning phrase representations using RNN encoder-decoder".
    """

    def __init__(self, input_size: int, size: int, *, generator: torch.Generator | None = None) -> None:
        """Makes the layer.

        Args:
            input_size: The number of input features, F.
            size: The number of output features, H.
            generator: The generator for the initial weights; None uses torch's global generator.
        """
        super().__init__()
        self.rnn = _orthogonal(nn.GRU, input_size, size, generator)
        self.output_size = size

    def initial_state(self, num_environments: int) -> MemoryState:
        return (next(self.parameters()).new_zeros(num_environments, self.output_size),)

    def unroll(self, features: torch.Tensor, state: MemoryState) -> tuple[torch.Tensor, MemoryState]:
        (hidden,) = state
        output, hidden = self.rnn(features, hidden[None].contiguous())
        return output, (hidden[0],)


Layer = TypeVar("Layer", nn.LSTM, nn.GRU)
_KINDS: dict[str, type[LSTM] | type[GRU]] = {"lstm": LSTM, "gru": GRU}


def make_memory(kind: Kind, input_size: int, size: int, *, generator: torch.Generator | None) -> Memory:
    """Makes a memory.

    Args:
        kind: The kind of memory, `lstm` or `gru`.
        input_size: The number of input features, F.
        size: The number of output features, H.
        generator: The generator for the initial weights; None uses torch's global generator.

    Raises:
        ValueError: The kind is unknown, or a size is below 1.
    """
    if kind not in _KINDS:
        raise ValueError(f"`kind` must be one of {', '.join(_KINDS)}, got {kind}.")
    for name, value in (("input_size", input_size), ("size", size)):
        if value < 1:
            raise ValueError(f"`{name}` must be >= 1, got {value}.")
    return _KINDS[kind](input_size, size, generator=generator)


def _orthogonal(layer: type[Layer], input_size: int, size: int, generator: torch.Generator | None) -> Layer:
    """Makes a recurrent layer with orthogonal weights for each gate, and biases of 0."""
    rnn = linear.unset(layer, input_size, size)
    for name, parameter in rnn.named_parameters():
        if name.startswith("bias"):
            nn.init.zeros_(parameter)
            continue
        for gate in parameter.detach().split(size):
            nn.init.orthogonal_(gate, generator=generator)
    return rnn
