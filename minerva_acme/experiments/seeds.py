"""Random seeds for the parts of a run."""

import numpy as np
import torch


class Seeds:
    """Independent seeds by name, all from one number. Adding a part changes no other part's seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def number(self, purpose: str, index: int = 0) -> int:
        """Returns the seed of a part; `index` tells apart several of the same kind."""
        sequence = np.random.SeedSequence([self._seed, index, *purpose.encode()])
        return int(sequence.generate_state(1)[0])

    def generator(self, purpose: str, device: torch.device | str = "cpu", index: int = 0) -> torch.Generator:
        """Returns a torch generator with the seed of a part; `index` as in `number`."""
        return torch.Generator(device).manual_seed(self.number(purpose, index))
