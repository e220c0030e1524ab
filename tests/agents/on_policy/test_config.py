"""Settings that both agents share."""

import pytest

from ..conftest import BOTH


@BOTH
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"policy_layer_sizes": ()}, r"`policy_layer_sizes` must be one or more sizes >= 1, got \(\)."),
        ({"value_layer_sizes": ()}, r"`value_layer_sizes` must be one or more sizes >= 1, got \(\)."),
        (
            {"value_layer_sizes": (64, 0)},
            r"`value_layer_sizes` must be one or more sizes >= 1, got \(64, 0\).",
        ),
        ({"num_environments": 0}, "`num_environments` must be >= 1, got 0."),
        ({"rollout_steps": 0}, "`rollout_steps` must be >= 1, got 0."),
        ({"max_skipped_batches": -1}, "`max_skipped_batches` must be >= 0, got -1."),
        (
            {"init_stddev": 0.0},
            r"`init_stddev` must be in \[0.000912, 7.39\], the range to which policies clamp it, got 0.0.",
        ),
        ({"init_stddev": 1e-6}, r"`init_stddev` must be in \[0.000912, 7.39\], .* got 1e-06."),
        ({"init_stddev": 8.0}, r"`init_stddev` must be in \[0.000912, 7.39\], .* got 8.0."),
        ({"learning_rate": -1e-4}, "`learning_rate` must be > 0, got -0.0001."),
        ({"learning_rate": float("nan")}, "`learning_rate` must be > 0, got nan."),
        ({"adam_epsilon": 0.0}, "`adam_epsilon` must be > 0"),
        ({"max_grad_norm": 0.0}, "`max_grad_norm` must be > 0"),
        ({"discount": 1.1}, r"`discount` must be in \[0, 1\], got 1.1."),
        ({"discount": float("nan")}, r"`discount` must be in \[0, 1\], got nan."),
        ({"gae_lambda": -0.1}, r"`gae_lambda` must be in \[0, 1\], got -0.1."),
        ({"torso": "relu"}, r"`torso` must be one of \('tanh', 'layer_norm'\), got 'relu'."),
        (
            {"advantage_estimator": "td"},
            r"`advantage_estimator` must be one of \('gae', 'dae', 'returns'\), got 'td'.",
        ),
        (
            {"num_environments": 3, "rollout_steps": 64},
            r"`rollout_steps` must be a multiple of `num_environments` \(3\), got 64. All environments",
        ),
        (
            {"shared_torso": True, "policy_layer_sizes": (8,), "value_layer_sizes": (9,)},
            r"`value_layer_sizes` must equal `policy_layer_sizes`, \(8,\), if `shared_torso` is set, got",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(agent, overrides, message):
    with pytest.raises(ValueError, match=message):
        agent.config(**overrides)


@BOTH
def test_the_bounds_of_the_ranges_are_taken(agent):
    config = agent.config(discount=1.0, gae_lambda=0.0, num_environments=16, rollout_steps=16)
    assert config.rollout_length == 1
    assert agent.config(discount=0.0, gae_lambda=1.0, max_skipped_batches=0).rollout_length == 16
