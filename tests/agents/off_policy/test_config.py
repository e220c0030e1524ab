"""Configs say what each of their fields is, and refuse what cannot work."""

import dataclasses

import pytest

from minerva_acme.agents import mpo, off_policy

from . import scene


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: off_policy.TransitionConfig(min_replay_size=8, max_replay_size=7),
            "Learning would never start: `min_replay_size` 8 is above `max_replay_size` 7",
        ),
        (lambda: off_policy.TransitionConfig(n_step=0), "`n_step` must be >= 1, got 0"),
        (
            lambda: off_policy.SequenceConfig(sequence_length=2, sequence_period=3),
            "`sequence_period` must be <= `sequence_length` 2, got 3",
        ),
        (
            lambda: off_policy.CriticConfig(critic_head="c51", vmin=2.0, vmax=2.0),
            "`vmin` must be < `vmax`, got 2.0 and 2.0",
        ),
        (lambda: off_policy.CriticConfig(num_critics=0), "`num_critics` must be >= 1, got 0"),
        (lambda: off_policy.PrioritizedConfig(priority_exponent=-0.1), "`priority_exponent` must be >= 0"),
        (lambda: scene.QConfig(replay_fading=0.0), r"`replay_fading` must be in \(0, 1\], got 0.0"),
        (lambda: scene.QConfig(replay_fading=1.01), r"`replay_fading` must be in \(0, 1\], got 1.01"),
        (lambda: scene.QConfig(replay_fading_floor=0.0), r"`replay_fading_floor` must be in \[1e-6, 1\)"),
        (lambda: mpo.MPOConfig(target_rate=0.0), r"`target_rate` must be in \(0, 1\], got 0.0"),
        (lambda: scene.QConfig(importance_exponent=1.5), r"`importance_exponent` must be in \[0, 1\]"),
    ],
)
def test_settings_that_cannot_work_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_prioritised_config_is_one_whatever_stands_first():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Other(off_policy.PrioritizedConfig, off_policy.TransitionConfig):
        pass

    names = [{field.name for field in dataclasses.fields(cls)} for cls in (Other, scene.QConfig)]
    assert names[0] == names[1] - {"learning_rate", "epsilon_steps"}
