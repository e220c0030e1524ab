"""Behaviour cloning: what its losses find, and how it acts."""

import numpy as np
import pytest
import torch

from minerva_acme.agents import bc

from .. import transition_scene as scene


def make_builder(**settings):
    return bc.BCBuilder(bc.BCConfig(**scene.TINY, policy_layer_sizes=(8,), **settings))


@pytest.mark.parametrize(
    ("settings", "discrete"), [({}, False), ({}, True), ({"loss": "squared_error"}, False)]
)
def test_its_greedy_action_is_that_of_the_data_in_each_state(settings, discrete):
    spec = scene.make_spec(discrete)
    builder = make_builder(**settings, learning_rate=1e-2)

    def batches():
        seed = 0
        while True:
            seed += 1
            batch = scene.make_batch(spec, seed, batch_size=32)
            sign = batch.observation[:, 0] > 0
            action = torch.where(sign[:, None], torch.tensor(scene.LOW), torch.tensor(scene.HIGH))
            yield batch._replace(action=(2 * sign).int() if discrete else 0.5 * action)

    learner, nets, _ = scene.make_learner(builder, spec, batches())
    learner.run(num_steps=200)
    observations = np.array([[1.5, 0.0, 0.0], [-1.5, 0.0, 0.0]], np.float32)
    expected = [2, 0] if discrete else 0.5 * np.array([scene.LOW, scene.HIGH])
    policy = builder.make_policy(nets, spec, torch.Generator().manual_seed(0), evaluation=True)
    np.testing.assert_allclose(policy.batch(observations).action, expected, atol=0.15)


@pytest.mark.parametrize(("loss", "varies"), [("likelihood", True), ("squared_error", False)])
def test_only_samples_of_a_distribution_vary(loss, varies):
    spec, builder = scene.make_spec(), make_builder(loss=loss)
    nets = builder.make_networks(spec, torch.Generator().manual_seed(0))
    spread = []
    for evaluation in (False, True):
        policy = builder.make_policy(nets, spec, torch.Generator().manual_seed(0), evaluation)
        spread.append(np.ptp(policy.batch(np.zeros((50, 3), np.float32)).action, axis=0))
    rounding = 1e-5  # the rows of a batch are not summed in the same order on every CPU
    assert (spread[0] > 0.5).all() if varies else (spread[0] < rounding).all()
    assert (spread[1] < rounding).all()


def test_a_distance_between_discrete_actions_is_refused():
    with pytest.raises(ValueError, match="`loss` must be likelihood with discrete actions, between which"):
        make_builder(loss="squared_error").check_spec(scene.make_spec(discrete=True))
    make_builder().check_spec(scene.make_spec(discrete=True))
