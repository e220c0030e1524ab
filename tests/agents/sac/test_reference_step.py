"""Learner steps of SAC against those of `reference.py`, weight by weight and number by number."""

import numpy as np
import pytest

from minerva_acme.agents import sac

from .. import transition_scene as scene
from . import reference


@pytest.mark.parametrize("num_critics", [1, 2, 3])
@pytest.mark.parametrize("target_entropy", [None, 0.7])
def test_steps_are_those_of_the_reference(num_critics, target_entropy):
    settings = {"learning_rate": 0.05, "target_rate": 0.3, "target_entropy": target_entropy}
    config = sac.SACConfig(**scene.CONTINUOUS, **settings, num_critics=num_critics, initial_temperature=0.4)
    if target_entropy is None:
        action = scene.make_spec().actions
        half_range = (action.maximum - action.minimum).astype(np.float64) / 2.0
        settings["target_entropy"] = (
            float(np.log(half_range).sum()) - 2.0
        )  # -1 each where bounds are -1 and 1
    scene.check_steps(
        scene.with_descent(sac.SACBuilder)(config),
        scene.make_spec(),
        lambda modules, generator: reference.Reference(modules, generator, **settings),
    )
