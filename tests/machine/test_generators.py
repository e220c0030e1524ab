"""A restored generator continues from its state, or from a seed if the state is of another kind of device."""

import pytest
import torch

from minerva_acme.machine import generators


def draw(generator):
    return torch.randn(3, generator=generator).tolist()


def test_a_restored_generator_draws_what_the_saved_one_does(caplog):
    saved, restored = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    draw(saved)
    generators.restore(restored, saved.get_state())
    assert draw(restored) == draw(saved)
    assert not caplog.messages


@pytest.mark.parametrize("num_bytes", [16, 20])  # 16 on a GPU
def test_a_state_of_another_kind_of_device_becomes_a_seed_and_the_log_says_so(num_bytes, caplog):
    drawn = []
    for seed, first in enumerate((1, 1, 2)):
        generator = torch.Generator().manual_seed(seed)
        generators.restore(generator, torch.full((num_bytes,), first, dtype=torch.uint8))
        drawn.append(draw(generator))
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(caplog.messages) == 3
    start = "The generator on cpu was saved on another kind of device"
    assert all(message.startswith(start) for message in caplog.messages)
