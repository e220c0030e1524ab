"""Learner steps of D4PG against those of `reference.py`, weight by weight and number by number."""

import pytest

from minerva_acme.agents import d4pg

from .. import transition_scene as scene
from . import reference


@pytest.mark.parametrize("max_grad_norm", [100.0, 0.05])
@pytest.mark.parametrize("max_action_gradient", [100.0, 0.05])
def test_steps_are_those_of_the_reference(max_grad_norm, max_action_gradient):
    config = d4pg.D4PGConfig(
        **scene.CONTINUOUS,
        vmin=-2.0,
        vmax=3.0,  # which some returns leave
        num_bins=11,
        policy_learning_rate=0.3,
        critic_learning_rate=0.2,
        max_grad_norm=max_grad_norm,
        max_action_gradient=max_action_gradient,
        target_policy_update_period=2,
        target_critic_update_period=3,
    )
    scene.check_steps(
        scene.with_descent(d4pg.D4PGBuilder)(config),
        scene.make_spec(),
        lambda modules, generator: reference.Reference(modules, generator, config=config),
    )
