"""Restores torch's generators, also on another kind of device."""

import hashlib
import logging

import torch

_logger = logging.getLogger(__name__)


def restore(generator: torch.Generator, state: torch.Tensor) -> None:
    """Restores a state that `generator.get_state()` returned, on this device or another.

    Generators of CPUs and GPUs have different states and draw different numbers. A state of the other kind
    is hashed to a seed, so equal states give equal numbers, and a warning is logged.

    Args:
        generator: The generator, of any device.
        state: The state, uint8 [bytes], on any device.
    """
    state = state.cpu()
    if state.shape == generator.get_state().shape:
        generator.set_state(state)
        return
    _logger.warning(
        "The generator on %s was saved on another kind of device, so it starts from a new seed: the random "
        "numbers are not those of a run that stays on one device.",
        generator.device,
    )
    digest = hashlib.blake2b(state.numpy().tobytes(), digest_size=8).digest()
    generator.manual_seed(int.from_bytes(digest, "little"))
