"""Learner steps of CRR against those of `reference.py`, weight by weight and number by number."""

import pytest
import torch

from minerva_acme.agents import crr

from .. import transition_scene as scene
from . import reference


@pytest.mark.parametrize(
    "settings", [{"weights": "binary"}, {"beta": 0.3, "max_weight": 1.5, "num_action_samples": 3}, {}]
)
def test_steps_are_those_of_the_reference(settings):
    config = crr.CRRConfig(
        **scene.CONTINUOUS, num_critics=2, learning_rate=0.05, target_update_period=3, **settings
    )
    scene.check_steps(
        scene.with_descent(crr.CRRBuilder)(config),
        scene.make_spec(),
        lambda modules, generator: reference.Reference(
            modules,
            generator,
            config=config,
            low=torch.tensor(scene.LOW).tolist(),
            high=torch.tensor(scene.HIGH).tolist(),
        ),
        make_sample=scene.make_sample_at_bounds,
    )
