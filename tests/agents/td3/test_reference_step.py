"""Learner steps of TD3 against those of `reference.py`, weight by weight and number by number."""

import pytest

from minerva_acme.agents import td3

from .. import transition_scene as scene
from . import reference


@pytest.mark.parametrize("num_critics", [1, 2])
@pytest.mark.parametrize("policy_period", [1, 2, 3])
def test_steps_are_those_of_the_reference(num_critics, policy_period):
    config = td3.TD3Config(
        **scene.CONTINUOUS,
        num_critics=num_critics,
        policy_period=policy_period,
        learning_rate=0.05,
        target_rate=0.3,
        target_stddev=0.6,  # so that some noise is clipped, and some actions are
        target_noise_clip=0.7,
    )
    scene.check_steps(
        scene.with_descent(td3.TD3Builder)(config),
        scene.make_spec(),
        lambda modules, generator: reference.Reference(
            modules, generator, config=config, low=scene.LOW, high=scene.HIGH
        ),
    )
