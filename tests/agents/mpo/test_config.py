import pytest

from minerva_acme.agents.mpo import PRESETS, MPOConfig


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"policy_layer_sizes": ()}, "`policy_layer_sizes` must be one or more sizes >= 1"),
        ({"critic_layer_sizes": (256, 0)}, "`critic_layer_sizes` must be one or more sizes >= 1"),
        ({"critic_layer_sizes": (256, 1e3)}, "`critic_layer_sizes` must be one or more sizes >= 1"),
        (
            {"policy_layer_sizes": (256, 1_000_000_000)},
            r"`policy_layer_sizes` must be sizes that can be trained with this machine's [\d.]+ GB of "
            r"memory, at 16 bytes a weight, got \(256, 1000000000\).",
        ),
        ({"sequence_length": 2.5}, "`sequence_length` must be a whole number, got 2.5."),
        ({"sequence_length": "5"}, "`sequence_length` must be >= 1, got '5'."),
        ({"sequence_length": True}, "`sequence_length` must be a whole number, got True."),
        ({"init_log_temperature": None}, "`init_log_temperature` must be a number, got None."),
        ({"init_log_temperature": float("nan")}, "`init_log_temperature` must be a number, got nan."),
        ({"action_penalty": "no"}, "`action_penalty` must be true or false, got 'no'."),
        ({"sequence_length": 0}, "`sequence_length` must be >= 1, got 0."),
        ({"discount": 1.1}, r"`discount` must be in \[0, 1\], got 1.1."),
        ({"discount": float("nan")}, r"`discount` must be in \[0, 1\], got nan."),
        ({"retrace_lambda": -0.1}, r"`retrace_lambda` must be in \[0, 1\]"),
        ({"epsilon": 0.0}, "`epsilon` must be > 0, got 0.0."),
        ({"init_stddev": 0.0}, r"`init_stddev` must be in \[0.000912, 7.39\], .* got 0.0."),
        ({"init_stddev": float("nan")}, r"`init_stddev` must be in \[0.000912, 7.39\], .* got nan."),
        ({"num_samples": 1}, "`num_samples` must be >= 2"),
        ({"critic_target": "td_lambda"}, "`critic_target` must be one of .*'retrace'.*got 'td_lambda'"),
        ({"optimizer": "rmsprop"}, "`optimizer` must be one of"),
        ({"sgd_momentum": 1.0}, r"`sgd_momentum` must be in \[0, 1\)"),
        ({"max_skipped_batches": -1}, "`max_skipped_batches` must be >= 0"),
        ({"min_replay_size": 11, "max_replay_size": 10}, "Learning would never start"),
        (
            {"unit_norm_weights": True},
            "`unit_norm_weights` must be False with `torso` mlp, .* Set `torso` to simba, or",
        ),
        (
            {"unit_norm_weights": True, "critic_torso": "mlp"},
            "`unit_norm_weights` must be False with `torso` mlp",
        ),
        ({"critic_torso": "tanh"}, "`critic_torso` must be one of .*'batch_norm'.*got 'tanh'"),
        (
            {"critic_torso": "batch_norm", "batch_size": 1},
            "`batch_size` must be >= 2 with `critic_torso` batch_norm, .* got 1.",
        ),
        ({"weight_decay": -0.1}, "`weight_decay` must be >= 0"),
        ({"final_learning_rate": 1.5}, r"`final_learning_rate` must be in \[0, 1\]"),
        ({"noise_repeat": 0}, "`noise_repeat` must be >= 1"),
        ({"sequence_period": 6}, "`sequence_period` must be <= `sequence_length` 5, got 6"),
    ],
)
def test_settings_that_make_no_sense_are_refused(overrides, message):
    with pytest.raises(ValueError, match=message):
        MPOConfig(**overrides)


def test_the_minerva_preset_has_the_values_of_the_original():
    preset = PRESETS["minerva"]
    assert preset.policy_layer_sizes == preset.critic_layer_sizes == (512, 256)
    assert (preset.discount, preset.num_samples, preset.sequence_length) == (0.98, 64, 2)
    assert (preset.policy_learning_rate, preset.critic_learning_rate) == (1e-4, 1e-4)
    assert (preset.temperature_learning_rate, preset.alpha_learning_rate) == (1e-3, 1e-2)
    assert (preset.epsilon, preset.epsilon_mean, preset.epsilon_stddev) == (0.1, 2.5e-3, 2.5e-3)
    assert (preset.max_grad_norm, preset.adam_epsilon, preset.init_log_temperature) == (1.0, 1e-5, 10.0)
    assert (preset.batch_size, preset.max_replay_size, preset.min_replay_size) == (256, 10**6, 10**4)
    assert preset.inserts_per_learner_step == 1.0
