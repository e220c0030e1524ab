"""Learner steps of IQL against those of `reference.py`, weight by weight and number by number."""

import pytest
import torch

from minerva_acme.agents import iql

from .. import transition_scene as scene
from . import reference


@pytest.mark.parametrize(  # of the second, about half of the weights are at their bound
    "settings", [{}, {"expectile": 0.9, "beta": 2.0, "max_weight": 0.65}, {"num_critics": 1}]
)
def test_steps_are_those_of_the_reference(settings):
    config = iql.IQLConfig(**{**scene.CONTINUOUS, "learning_rate": 0.05, "target_rate": 0.3, **settings})
    scene.check_steps(
        scene.with_descent(iql.IQLBuilder)(config),
        scene.make_spec(),
        lambda modules, generator: reference.Reference(
            modules,
            config=config,
            low=torch.tensor(scene.LOW).tolist(),
            high=torch.tensor(scene.HIGH).tolist(),
        ),
        make_sample=scene.make_sample_at_bounds,
    )


def test_defaults_are_those_of_the_paper_for_mujoco():
    config = iql.IQLConfig()
    assert (config.expectile, config.beta, config.max_weight) == (0.7, 3.0, 100.0)
    assert (config.learning_rate, config.target_rate, config.discount) == (3e-4, 0.005, 0.99)
    assert (config.batch_size, config.num_critics, config.critic_ensemble) == (256, 2, "min")


@pytest.mark.parametrize("expectile", [0.0, 1.0, -0.1])
def test_an_expectile_that_is_none_is_refused(expectile):
    with pytest.raises(ValueError, match=r"`expectile` must be in \(0, 1\), got"):
        iql.IQLConfig(expectile=expectile)
