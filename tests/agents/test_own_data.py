"""Every agent learns from an iterator of a user's own: from arrays the same as from replay's tensors."""

import itertools

import numpy as np
import pytest
import torch
import tree

from minerva_acme import learners, specs

from . import transition_scene as scene


def as_arrays(batch):
    """The batch as a file of numpy arrays would have it, with numbers that float32 holds in float64."""
    return tree.map_structure(
        lambda leaf: leaf.double().numpy() if leaf.is_floating_point() else leaf.numpy(), batch
    )


def assert_same_weights(one, other):
    for weights, others in zip(one, other, strict=True):
        assert weights.keys() == others.keys()
        for name, values in weights.items():
            np.testing.assert_array_equal(values, others[name])


def test_learners_of_sequences_and_rollouts_take_arrays(learner_scene):
    batches = [learner_scene.make_batch(seed) for seed in range(2)]
    plain, _ = learner_scene.make(batches)
    own, _ = learner_scene.make(map(as_arrays, batches))
    names = ["policy", "critic"] if learner_scene.name == "mpo" else ["network"]
    before = plain.get_variables(names)
    for _ in batches:
        plain.step()
        own.step()
    assert_same_weights(plain.get_variables(names), own.get_variables(names))
    with pytest.raises(AssertionError):
        assert_same_weights(before, own.get_variables(names))


def test_learners_of_sequences_and_rollouts_name_what_the_extras_lack(learner_scene):
    learner, _ = learner_scene.make([learner_scene.make_batch(0)._replace(extras=())])
    with pytest.raises(TypeError, match=r"`extras` of a batch must have `.*`, .* got \(\)"):
        learner.step()


@pytest.mark.parametrize("name", scene.AGENTS)
def test_agents_over_transitions_take_bare_arrays(name):
    agent = scene.AGENTS[name]
    batches = [scene.make_batch(agent.spec, seed) for seed in range(2)]
    options = {"prioritized": False} if name == "dqn" else {}
    plain, _, _ = scene.make_learner(agent.make(**options), agent.spec, batches)
    bare = (as_arrays(batch) for batch in batches)
    own, networks, _ = scene.make_learner(agent.make(**options), agent.spec, dataset=bare)
    for _ in batches:
        plain.step()
        own.step()
    assert_same_weights(plain.get_variables(networks._fields), own.get_variables(networks._fields))


def test_priorities_without_info_are_named():
    agent = scene.AGENTS["dqn"]
    batches = iter([scene.make_batch(agent.spec)])
    learner, _, _ = scene.make_learner(
        agent.make(prioritized=True), agent.spec, dataset=batches, client=object()
    )
    with pytest.raises(TypeError, match="with an `info`, the `replay.SampleInfo` of their items"):
        learner.step()


def test_images_of_bare_arrays_are_shifted():
    images = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), np.uint8)
    spec = specs.BoundedArray((8, 8, 3), np.uint8, 0, 255, name="image")
    batch = scene.make_batch(scene.make_spec(), batch_size=4)
    batch = as_arrays(
        batch._replace(observation=torch.from_numpy(images), next_observation=torch.from_numpy(images))
    )
    shifted = learners.RandomShift(
        itertools.repeat(batch),
        observation_spec=spec,
        num_pixels=2,
        generator=torch.Generator().manual_seed(0),
    )
    data = next(shifted).data
    assert data.observation.dtype == torch.uint8 and data.observation.shape == images.shape
    assert not np.array_equal(data.observation.numpy(), images)
