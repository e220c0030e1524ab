import pytest

from minerva_acme.agents.vmpo import PRESETS, VMPOConfig


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"m_steps": 0}, "`m_steps` must be >= 1, got 0."),
        *(
            ({name: 0.0}, f"`{name}` must be > 0, got 0.0.")
            for name in (
                "epsilon_temperature",
                "epsilon_mean",
                "epsilon_stddev",
                "init_temperature",
                "init_alpha",
                "temperature_learning_rate",
                "alpha_learning_rate",
            )
        ),
        ({"top_k_fraction": 0.0}, r"`top_k_fraction` must be in \(0, 1\], got 0.0."),
        ({"top_k_fraction": 1.5}, r"`top_k_fraction` must be in \(0, 1\], got 1.5."),
        (
            {"top_k_fraction": 0.1, "rollout_steps": 8},
            r"`top_k_fraction` must leave at least one sample of `rollout_steps` \(8\), got 0.1. Raise it",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(overrides, message):
    with pytest.raises(ValueError, match=message):
        VMPOConfig(**overrides)


def test_all_samples_may_be_selected():
    assert VMPOConfig(top_k_fraction=1.0).top_k_fraction == 1.0


def test_the_minerva_preset_has_the_values_of_the_original():
    preset = PRESETS["minerva"]
    assert preset.policy_layer_sizes == preset.value_layer_sizes == (512, 256)
    assert (preset.rollout_steps, preset.m_steps, preset.top_k_fraction) == (4096, 16, 0.6)
    assert (preset.discount, preset.gae_lambda, preset.learning_rate) == (0.98, 0.95, 1e-4)
    assert (preset.epsilon_temperature, preset.epsilon_mean, preset.epsilon_stddev) == (0.15, 0.05, 0.05)
    assert (preset.init_temperature, preset.init_alpha, preset.max_grad_norm) == (1.0, 1.0, 2.0)
    assert (preset.torso, preset.state_dependent_stddev, preset.squash_actions) == ("layer_norm", True, True)
