"""A function of tensors as one CUDA graph: launched once a call, whatever number of kernels it has."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import tree

_WARM_UP_CALLS = 3  # Libraries choose kernels and take memory in the first ones, which no graph may hold.


class Captured:
    """Calls a function as it is three times, records it in the next call, and from then on replays it.

    The function runs on the host while it is recorded and never again: what it does to tensors in place
    is repeated, what it does to anything else is not, and it must read nothing back from the device.
    """

    def __init__(
        self, function: Callable[[Any], Any], *, device: torch.device, generators: Sequence[torch.Generator]
    ) -> None:
        """Takes over the function.

        Args:
            function: (a nest of tensors) -> a nest of tensors.
            device: a CUDA device, where all of them are.
            generators: those it draws from; a replay draws on, as a call would.
        """
        self._function = function
        self._device = device
        self._generators = tuple(generators)
        self._num_calls = 0
        self._inputs: Any = None
        self._outputs: Any = None
        self._replay: Callable[[], None] | None = None

    def __call__(self, inputs: Any) -> Any:
        """Computes the function.

        Args:
            inputs: a nest of tensors, of the same structure, shapes and dtypes each time.

        Returns:
            Its outputs, which the next call overwrites.

        Raises:
            ValueError: the inputs differ from those that were recorded.
        """
        self._num_calls += 1
        if self._num_calls <= _WARM_UP_CALLS:
            return self._warm_up(inputs)
        if self._replay is None:
            self._inputs = tree.map_structure(torch.clone, inputs)
            self._replay = self._record()
        else:
            self._copy(inputs)
        self._replay()
        return self._outputs

    def _copy(self, inputs: Any) -> None:
        expected, found = ([leaf.shape for leaf in tree.flatten(nest)] for nest in (self._inputs, inputs))
        if expected != found:
            raise ValueError(
                f"Inputs must keep the shapes a CUDA graph was recorded with, {[*map(tuple, expected)]}, "
                f"got {[*map(tuple, found)]}. Make batches of one size, or set `cuda_graph` to False."
            )
        for ours, theirs in zip(tree.flatten(self._inputs), tree.flatten(inputs), strict=True):
            ours.copy_(theirs, non_blocking=True)

    def _warm_up(self, inputs: Any) -> Any:
        """On a stream of its own, as recording needs it."""
        stream, current = torch.cuda.Stream(self._device), torch.cuda.current_stream(self._device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            outputs = self._function(inputs)
        current.wait_stream(stream)
        return outputs

    def _record(self) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        # Another thread may be copying the next batch to the device meanwhile.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._outputs = self._function(self._inputs)
        replay: Callable[[], None] = graph.replay
        return replay
