import pytest

from minerva_acme.agents.ppo import PRESETS, PPOConfig


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"num_epochs": 0}, "`num_epochs` must be >= 1, got 0."),
        ({"minibatch_size": 1}, "`minibatch_size` must be >= 2 samples, got 1."),
        ({"clip_ratio": 0.0}, "`clip_ratio` must be > 0, got 0.0."),
        ({"value_coef": -0.5}, "`value_coef` must be >= 0, got -0.5."),
        ({"entropy_coef": -0.1}, "`entropy_coef` must be >= 0, got -0.1."),
        ({"target_kl": -0.1}, "`target_kl` must be >= 0 or None, got -0.1."),
        (
            {"minibatch_size": 65, "rollout_steps": 64},
            r"`minibatch_size` must be <= `rollout_steps` \(64\), got 65. Lower it, or make longer rollouts.",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(overrides, message):
    with pytest.raises(ValueError, match=message):
        PPOConfig(**overrides)


def test_a_minibatch_may_be_the_whole_rollout():
    config = PPOConfig(minibatch_size=64, rollout_steps=64, target_kl=None, entropy_coef=0.0)
    assert config.minibatch_size == config.rollout_steps


def test_the_minerva_preset_has_the_values_of_the_original():
    preset = PRESETS["minerva"]
    assert (preset.rollout_steps, preset.num_epochs, preset.minibatch_size) == (2048, 10, 64)
    assert (preset.learning_rate, preset.anneal_learning_rate, preset.max_grad_norm) == (3e-4, True, 0.5)
    assert (preset.discount, preset.gae_lambda, preset.clip_ratio, preset.clip_value) == (
        0.99,
        0.95,
        0.2,
        True,
    )
    assert (preset.value_coef, preset.entropy_coef, preset.target_kl) == (0.5, 0.0, 0.02)
    assert (preset.torso, preset.state_dependent_stddev, preset.squash_actions) == ("tanh", False, False)
    assert (preset.normalize_observations, preset.scale_rewards) == (True, True)
