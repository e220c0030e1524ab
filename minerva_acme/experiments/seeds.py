"""Random seeds for the parts of a run."""

import contextlib
import dataclasses
import random
import threading
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch

from minerva_acme import core
from minerva_acme.wrappers import random_state


class Seeds:
    """Independent seeds by name, all derived from one number. Adding a part changes no other part's seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def number(self, purpose: str, index: int = 0) -> int:
        """Returns the seed of a part; `index` distinguishes several parts of the same kind."""
        sequence = np.random.SeedSequence([self._seed, index, *purpose.encode()])
        return int(sequence.generate_state(1)[0])

    def generator(self, purpose: str, device: torch.device | str = "cpu", index: int = 0) -> torch.Generator:
        """Returns a torch generator with the seed of a part; `index` is as in `number`."""
        return torch.Generator(device).manual_seed(self.number(purpose, index))


@dataclasses.dataclass(eq=False)
class _Found:
    """The states that a context of `GlobalGenerators.seeded` restores, its own first and the oldest last."""

    states: list[tuple["GlobalGenerators", core.State]]


class GlobalGenerators(core.Saveable):
    """The global generators of torch, numpy and Python's `random`, which code uses when it is given no other.

    The agents of this library draw from generators that they are given. Others may use dropout, draw noise in
    a loss with `torch.randn_like`, make layers with `nn.Linear` or explore with `np.random`.

    The generators belong to the process: all of its threads share them. So contexts of `seeded` may overlap
    instead of being nested. One that ends before a later one leaves the generators as they are; the states
    that it found are restored when the later one ends.
    """

    _open: ClassVar[list[_Found]] = []
    # Reentrant: garbage collection ends a context that was left open, and can start while the lock is held.
    _open_lock = threading.RLock()

    def __init__(self, device: torch.device | str) -> None:
        """Draws nothing.

        Args:
            device: The device of the run. If it is a GPU, its generator belongs to the state too.
        """
        self._device = torch.device(device)

    @contextlib.contextmanager
    def seeded(self, seeds: Seeds, purpose: str = "global", index: int = 0) -> Iterator[None]:
        """Seeds all of them. At the end of the context, and of those begun in it, restores earlier states.

        Args:
            seeds: The run's seeds.
            purpose: The purpose of the numbers; each purpose has different ones.
            index: Distinguishes several uses with the same purpose.
        """
        with self._open_lock:
            found = _Found([(self, self.save())])
            self._open.append(found)
        try:
            # Torch and numpy use the same kind of generator: with one seed they would draw the same bits.
            torch.default_generator.manual_seed(seeds.number(f"{purpose} torch", index))
            if self._has_cuda:
                with torch.cuda.device(self._device):
                    torch.cuda.manual_seed(seeds.number(f"{purpose} cuda", index))
            np.random.seed(seeds.number(f"{purpose} numpy", index))
            random.seed(seeds.number(f"{purpose} python", index))
            yield
        finally:
            with self._open_lock:
                place = self._open.index(found)
                del self._open[place]
                if place < len(self._open):
                    self._open[place].states += found.states
                else:
                    for generators, state in found.states:
                        generators.restore(state)

    def save(self) -> core.State:
        return {
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state(self._device) if self._has_cuda else None,
            "numpy": random_state.to_plain(np.random.get_state(legacy=False)),
            "python": random.getstate(),
        }

    def restore(self, state: core.State) -> None:
        # A checkpoint is loaded to the run's device, including these states.
        torch.set_rng_state(state["torch"].cpu())
        if self._has_cuda and state["cuda"] is not None:
            torch.cuda.set_rng_state(state["cuda"].cpu(), self._device)
        np.random.set_state(random_state.to_numpy(state["numpy"]))
        random.setstate(state["python"])

    @property
    def _has_cuda(self) -> bool:
        return self._device.type == "cuda"
