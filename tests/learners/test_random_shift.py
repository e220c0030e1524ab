"""Images of a batch, shifted at random."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from dm_env import specs

from minerva_acme import learners, types
from minerva_acme.learners import random_shift


class Sample(NamedTuple):
    info: str
    data: types.Transition


def shifted_by_hand(image, dy, dx):
    """An image [H, W], padded by its border and cropped: row by row, pixel by pixel."""
    height, width = image.shape
    result = np.empty_like(image)
    for y in range(height):
        for x in range(width):
            result[y, x] = image[min(max(y + dy, 0), height - 1), min(max(x + dx, 0), width - 1)]
    return result


def find_shift(image, shifted, most):
    """The shifts of which the padded and cropped image is the result."""
    span = range(-most, most + 1)
    return [(dy, dx) for dy in span for dx in span if np.array_equal(shifted_by_hand(image, dy, dx), shifted)]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def random_images(*shape):
    return torch.randint(256, shape, generator=generator(), dtype=torch.uint8)


@pytest.mark.parametrize(
    ("shape", "frames"),
    [
        ((6, 5), lambda image: [image]),
        ((6, 5, 3), lambda image: [image[:, :, channel] for channel in range(3)]),
        ((2, 6, 5), lambda image: list(image)),
        ((2, 6, 5, 3), lambda image: [image[k, :, :, channel] for k in range(2) for channel in range(3)]),
    ],
)
def test_every_image_is_padded_and_cropped_as_a_whole_by_one_shift(shape, frames):
    images = random_images(20, *shape)
    shifted = random_shift.shift_images(images, shape, 2, generator())
    assert shifted.dtype == torch.uint8
    assert shifted.shape == images.shape
    for before, after in zip(images.numpy(), shifted.numpy(), strict=True):
        found = [find_shift(*pair, 2) for pair in zip(frames(before), frames(after), strict=True)]
        assert len(found[0]) == 1
        assert all(shift == found[0] for shift in found)


def test_all_shifts_are_drawn_and_as_often():
    images = random_images(1, 7, 7).expand(900, 7, 7)
    shifted = random_shift.shift_images(images, (7, 7), 1, generator()).numpy()
    counts: dict[tuple[int, int], int] = {}
    for image in shifted:
        (shift,) = find_shift(images[0].numpy(), image, 1)
        counts[shift] = counts.get(shift, 0) + 1
    assert len(counts) == 9
    assert all(60 < count < 140 for count in counts.values())  # 100 expected, standard deviation 9.4


def test_every_state_of_a_sequence_has_a_shift_of_its_own():
    image = random_images(6, 6, 3)
    shifted = random_shift.shift_images(image.expand(2, 8, 6, 6, 3), (6, 6, 3), 4, generator())
    assert len({state.numpy().tobytes() for sequence in shifted for state in sequence}) > 8


def transitions(batch_size=16):
    def observation(first):
        return {"camera": random_images(batch_size, 6, 6, 3) ^ first, "joints": torch.ones(batch_size, 2)}

    return types.Transition(
        observation=observation(0),
        action=torch.ones(batch_size, 1),
        reward=torch.ones(batch_size),
        discount=torch.ones(batch_size),
        next_observation=observation(1),
    )


SPEC = {
    "camera": specs.BoundedArray((6, 6, 3), np.uint8, 0, 255),
    "joints": specs.Array((2,), np.float32),
}


def dataset(seed, data, num_pixels=2):
    return learners.RandomShift(
        iter([Sample("info", data)] * 3),
        observation_spec=SPEC,
        num_pixels=num_pixels,
        generator=generator(seed),
    )


def test_both_observations_of_a_transition_are_shifted_and_nothing_else():
    data = transitions()
    sample = next(dataset(0, data))
    assert sample.info == "info"
    shifts = []
    for before, after in (
        (data.observation, sample.data.observation),
        (data.next_observation, sample.data.next_observation),
    ):
        assert torch.equal(before["joints"], after["joints"])
        pairs = zip(before["camera"].numpy(), after["camera"].numpy(), strict=True)
        shifts.append([find_shift(old[..., 0], new[..., 0], 2) for old, new in pairs])
    assert shifts[0] != shifts[1]
    assert all(len({str(shift) for shift in found}) > 4 for found in shifts)  # of 16 images, 25 shifts
    assert sample.data.reward is data.reward


def test_sequences_without_a_next_observation_are_shifted_too():
    images = random_images(4, 3, 6, 6, 3)
    data = types.Trajectory(
        observation={"camera": images, "joints": torch.zeros(4, 3, 2)},
        action=torch.zeros(4, 2, 1),
        reward=torch.zeros(4, 2),
        discount=torch.ones(4, 2),
        mask=torch.ones(4, 2),
    )
    shifted = next(dataset(0, data)).data.observation["camera"]
    assert shifted.shape == images.shape
    assert not torch.equal(shifted, images)


def test_the_generator_alone_decides():
    data = transitions()

    def camera(seed):
        return next(dataset(seed, data)).data.observation["camera"]

    assert torch.equal(camera(1), camera(1))
    assert not torch.equal(camera(1), camera(2))


def test_a_shift_by_nothing_is_refused():
    with pytest.raises(ValueError, match="`num_pixels` must be >= 1, got 0"):
        dataset(0, transitions(), num_pixels=0)
