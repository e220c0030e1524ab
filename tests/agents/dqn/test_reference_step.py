"""Learner steps of DQN against those of `reference.py`, weight by weight and number by number."""

import pytest

from minerva_acme.agents import dqn

from .. import transition_scene as scene
from . import reference


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize(("critic_head", "max_td_error"), [("scalar", None), ("scalar", 0.3), ("c51", None)])
@pytest.mark.parametrize("max_grad_norm", [100.0, 0.1])
def test_steps_are_those_of_the_reference(double, dueling, critic_head, max_td_error, max_grad_norm):
    config = dqn.DQNConfig(
        **scene.AGENTS["dqn"].tiny,
        double=double,
        dueling=dueling,
        critic_head=critic_head,
        max_td_error=max_td_error,
        vmin=-2.0,
        vmax=4.0,  # float32, in which the atoms are, holds them exactly
        num_bins=7,
        learning_rate=0.05,
        max_grad_norm=max_grad_norm,
        target_update_period=2,
    )
    scene.check_steps(
        scene.with_descent(dqn.DQNBuilder)(config),
        scene.make_spec(discrete=True),
        lambda modules, generator: reference.Reference(modules, generator, config=config),
    )
