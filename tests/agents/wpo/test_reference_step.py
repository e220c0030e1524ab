"""Learner steps of WPO against those of `reference.py`, weight by weight and number by number."""

import pytest

from minerva_acme.agents import wpo

from .. import transition_scene as scene
from . import reference


@pytest.mark.parametrize(
    "settings", [{}, {"cube_root": True, "kl_weight_mean": 2.0}, {"num_critics": 2, "num_samples": 1}]
)
def test_steps_are_those_of_the_reference(settings):
    few = {"num_samples": 3, "learning_rate": 0.01, "target_update_period": 3, "kl_weight_stddev": 5.0}
    config = wpo.WPOConfig(**{**scene.CONTINUOUS, **few, **settings})
    scene.check_steps(
        scene.with_descent(wpo.WPOBuilder)(config),
        scene.make_spec(),
        lambda modules, generator: reference.Reference(modules, generator, config=config),
    )


def test_a_preset_is_acmes_script():
    config = wpo.PRESETS["acme"]
    assert config.policy_layer_sizes == config.critic_layer_sizes == (256, 256, 256)
    assert (config.learning_rate, config.n_step, config.target_update_period) == (3e-4, 5, 100)
    assert (config.batch_size, config.samples_per_insert, config.init_stddev) == (256, 64.0, 0.5)
    assert config.max_grad_norm == 40.0
    # Weights of softplus(0) and 10,000 beside a sum over 20 samples.
    assert (round(20 * config.kl_weight_mean, 2), 20 * config.kl_weight_stddev) == (0.7, 10_000.0)
