"""Encoders: from any observation to features."""

import numpy as np
import pytest
import torch
import tree

from minerva_acme import networks, specs


def make(spec, seed=0):
    return networks.make_encoder(spec, generator=torch.Generator().manual_seed(seed))


def image(*shape):
    return specs.BoundedArray(shape, np.uint8, 0, 255)


NEST = {
    "camera": image(5, 6, 3),
    "gear": specs.DiscreteArray(4),
    "joints": (specs.Array((3,), np.float32), specs.Array((), np.float32)),
    "touch": specs.Array((2, 2), np.bool_),
}


def draw(spec, *leading, seed=0):
    random = np.random.default_rng(seed)

    def leaf(s):
        if s.dtype == np.float32:
            return torch.from_numpy(random.standard_normal((*leading, *s.shape)).astype(np.float32))
        high = {"uint8": 256, "bool": 2}.get(s.dtype.name, getattr(s, "num_values", 9))
        return torch.from_numpy(np.asarray(random.integers(0, high, (*leading, *s.shape)).astype(s.dtype)))

    return tree.map_structure(leaf, spec)


def test_a_vector_is_its_own_features_without_parameters_or_noise() -> None:
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    encoder = networks.make_encoder(specs.Array((7,), np.float32), generator=generator)
    x = torch.randn(3, 7)
    assert encoder(x) is x
    assert encoder.output_size == 7
    assert not encoder.state_dict()
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        (specs.Array((), np.float32), 1),
        (specs.Array((2, 3), np.float32), 6),
        (specs.Array((4, 4, 3), np.float32), 48),
        (specs.Array((3,), np.int32), 3),
        (specs.Array((2,), np.bool_), 2),
        (image(128), 128),
        (image(2, 9), 18),  # not an image that a kernel fits in
        (specs.DiscreteArray(5), 5),
        (image(10, 10, 4), 128),
        (image(36, 40, 3), 512),
        (image(4, 36, 40), 512),
        (image(4, 12, 12, 3), 128),
        (image(12, 12), 128),
        (NEST, 128 + 4 + 3 + 1 + 4),
    ],
)
@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (0,)])
def test_leading_axes_stay_whatever_the_observation(spec, size, leading) -> None:
    encoder = make(spec)
    features = encoder(draw(spec, *leading))
    assert encoder.output_size == size
    assert features.shape == (*leading, size)
    assert features.dtype == torch.float32


@pytest.mark.parametrize("spec", [NEST, image(5, 6, 3), image(3, 5, 6), image(2, 5, 6, 3), image(5, 6)])
def test_each_observation_is_encoded_by_itself(spec) -> None:
    encoder, batch = make(spec), draw(spec, 2, 3)
    features = encoder(batch)
    for i in range(2):
        for j in range(3):
            alone = encoder(tree.map_structure(lambda leaf, i=i, j=j: leaf[i, j], batch))
            torch.testing.assert_close(features[i, j], alone)


def test_other_numbers_stay_as_they_are_and_a_choice_becomes_one_of_many() -> None:
    features = make({"b": specs.Array((2,), np.int64), "a": specs.DiscreteArray(3)})(
        {"b": torch.tensor([7, -8]), "a": torch.tensor(2)}
    )
    assert features.tolist() == [0, 0, 1, 7, -8]  # in the order of the keys


def test_bytes_of_an_image_are_scaled_to_one_at_most() -> None:
    encoder = networks.ImageEncoder((3, 3), convolutions=[(1, 3, 1)], output_size=1)
    with torch.no_grad():
        encoder.convolutions[0].weight.fill_(1.0)
        encoder.head.weight.fill_(1.0)
    assert encoder(torch.full((3, 3), 255, dtype=torch.uint8)).item() == pytest.approx(9.0)
    assert encoder(torch.tensor([[51, 0, 0]] * 3, dtype=torch.uint8)).item() == pytest.approx(0.6)


def test_axes_are_channels_height_and_width_in_every_order_that_is_taken() -> None:
    """A kernel that looks at one pixel of one channel finds it wherever channels lie."""
    pixels = torch.randint(
        0, 256, (2, 4, 5, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )

    def first_features(x):
        encoder = networks.ImageEncoder(x.shape, convolutions=[(1, 1, 1)], output_size=20)
        with torch.no_grad():
            encoder.convolutions[0].weight.zero_()
            encoder.convolutions[0].weight[0, -1] = 255.0
            encoder.head.weight.copy_(torch.eye(20))
        return encoder(x).reshape(4, 5)

    wanted = pixels[1, :, :, 2].float()
    for layout in (pixels, pixels[1], pixels[1].permute(2, 0, 1), pixels[1, :, :, 2]):
        torch.testing.assert_close(first_features(layout), wanted)


def test_convolutions_are_those_of_the_papers() -> None:
    encoder = make(image(84, 84, 4))
    shapes = [tuple(p.shape) for p in encoder.parameters() if p.ndim > 1]
    assert shapes == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 7 * 7 * 64)]
    shapes = [tuple(p.shape) for p in make(image(10, 10, 4)).parameters() if p.ndim > 1]
    assert shapes == [(16, 4, 3, 3), (128, 8 * 8 * 16)]


def test_weights_come_from_the_generator_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    one, same, other = make(NEST, 0), make(NEST, 0), make(NEST, 1)
    assert torch.equal(torch.get_rng_state(), before)
    weights = [torch.cat([p.flatten() for p in encoder.parameters()]) for encoder in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_an_image_that_no_kernel_fits_in_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(8, 8, 3\) is too small for the convolutions .*: a kernel of 8"):
        networks.ImageEncoder((8, 8, 3), convolutions=[(4, 3, 1), (4, 8, 1)])
    with pytest.raises(ValueError, match=r"`shape` must be an image's: .* got \(8,\)"):
        networks.ImageEncoder((8,))


@pytest.mark.parametrize(
    ("shape", "name", "channels", "size"),
    [
        ((3, 84, 84, 3), "small", [16, 32, 32], 128),
        ((3, 84, 84, 3), "nature", [32, 64, 64], 512),
        ((10, 10, 4), "small", [16], 128),  # MinAtar's, whichever is named
    ],
)
def test_the_layers_for_large_images_are_those_that_are_named(shape, name, channels, size) -> None:
    encoder = networks.make_encoder(image(*shape), generator=None, image_encoder=name)
    assert [layer.out_channels for layer in encoder.convolutions[::2]] == channels
    assert encoder.output_size == size
    spec = {"camera": image(*shape)}
    nested = networks.make_encoder(spec, generator=None, image_encoder=name)
    assert nested(draw(spec, 2)).shape == (2, size)


@pytest.mark.parametrize(
    ("shape", "axes"), [((6, 5), (0, 1)), ((6, 5, 3), (0, 1)), ((3, 6, 5), (1, 2)), ((2, 6, 5, 3), (1, 2))]
)
def test_the_axes_of_height_and_width_are_found(shape, axes) -> None:
    assert networks.image_axes(shape) == axes


def test_the_encoder_of_a_policy_keeps_what_subclasses_override():
    class Doubled(networks.PartedEncoder):
        def forward(self, observation):
            return 2.0 * super().forward(observation)

    class Raised(networks.NormalizedEncoder):
        def forward(self, observation):
            return 1.0 + super().forward(observation)

    spec = {"seen": specs.Array((2,), np.float32), "hidden": specs.Array((3,), np.float32)}
    parted = Doubled(make(spec["seen"]), make(spec["hidden"]), ["hidden"])
    encoder = Raised(networks.make_normalizer(spec, each_entry=True), parted)
    observation = {"seen": torch.ones(4, 2), "hidden": torch.ones(4, 3)}
    of_policy = networks.encoder_of_policy(encoder)
    torch.testing.assert_close(of_policy(observation), encoder(observation)[:, :2])
    assert (
        of_policy.output_size == 2 and encoder.output_size == 5 and not torch.any(of_policy(observation) == 1)
    )
    assert "hidden" not in str([name for name, _ in of_policy.named_modules()])
    assert encoder.encoder.critic is not None
