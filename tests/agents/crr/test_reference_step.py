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


def test_the_actions_that_are_compared_with_are_those_that_would_be_executed():
    """A raw action beyond its bounds has the value of the action at them."""
    builder, spec = scene.AGENTS["crr"].make(), scene.make_spec()
    nets = builder.make_networks(spec, torch.Generator().manual_seed(0))
    observation = torch.zeros(1, 3)
    values = [nets.critic(observation, torch.tensor([high])).mean() for high in (scene.HIGH, [7.0, 9.0])]
    assert values[0] == values[1]
