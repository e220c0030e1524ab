"""Restoring torch's generators, on another device too."""

import hashlib
import logging

import torch

_logger = logging.getLogger(__name__)


def restore(generator: torch.Generator, state: torch.Tensor) -> None:
    """Restores what `generator.get_state()` returned, here or on another device.

    Generators of CPUs and GPUs have different states and draw different numbers. A state of the other kind
    becomes a seed: always the same for the same state. A warning says so.

    Args:
        generator: The generator, of any device.
        state: The state, uint8 [bytes], on any device.
    """
    state = state.cpu()
    if state.shape == generator.get_state().shape:
        generator.set_state(state)
        return
    _logger.warning(
        "Saved on another kind of device, a generator on %s is seeded anew: a run that changes devices draws "
        "other random numbers than one that does not.",
        generator.device,
    )
    digest = hashlib.blake2b(state.numpy().tobytes(), digest_size=8).digest()
    generator.manual_seed(int.from_bytes(digest, "little"))
