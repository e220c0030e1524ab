"""Learner steps of TD3 against those of `reference.py`, weight by weight and number by number."""

import pytest
import torch

from minerva_acme.agents import td3

from .. import transition_scene as scene
from . import reference


@pytest.mark.parametrize("num_critics", [1, 2])
@pytest.mark.parametrize(("policy_period", "bc_alpha"), [(1, None), (2, None), (3, None), (1, 0.7), (2, 2.5)])
def test_steps_are_those_of_the_reference(num_critics, policy_period, bc_alpha):
    config = td3.TD3Config(
        **scene.CONTINUOUS,
        num_critics=num_critics,
        policy_period=policy_period,
        bc_alpha=bc_alpha,
        learning_rate=0.05,
        target_rate=0.3,
        target_stddev=0.6,  # so that some noise is clipped, and some actions are
        target_noise_clip=0.7,
    )
    scene.check_steps(
        scene.with_descent(td3.TD3Builder)(config),
        scene.make_spec(),
        lambda modules, generator: reference.Reference(
            modules,
            generator,
            config=config,
            low=torch.tensor(scene.LOW).tolist(),
            high=torch.tensor(scene.HIGH).tolist(),
        ),
    )
