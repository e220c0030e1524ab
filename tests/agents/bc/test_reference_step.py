"""Learner steps of behaviour cloning against those of `reference.py`, weight by weight."""

import pytest
import torch

from minerva_acme.agents import bc

from .. import transition_scene as scene
from . import reference


@pytest.mark.parametrize("torso", ["mlp", "simba"])
@pytest.mark.parametrize(
    ("loss", "discrete"), [("likelihood", False), ("likelihood", True), ("squared_error", False)]
)
def test_steps_are_those_of_the_reference(torso, loss, discrete):
    config = bc.BCConfig(**scene.TINY, torso=torso, policy_layer_sizes=(8, 8), loss=loss, learning_rate=0.05)
    scene.check_steps(
        scene.with_descent(bc.BCBuilder)(config),
        scene.make_spec(discrete),
        lambda modules, generator: reference.Reference(
            modules,
            generator,
            config=config,
            low=torch.tensor(scene.LOW).tolist(),
            high=torch.tensor(scene.HIGH).tolist(),
        ),
        make_sample=scene.make_sample if discrete else scene.make_sample_at_bounds,
    )
