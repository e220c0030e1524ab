import dm_env
import pytest

from minerva_acme import testing, wrappers

FIRST, MID, LAST = dm_env.StepType


def play(environment, steps):
    return [environment.step(0) for _ in range(steps)]


@pytest.mark.parametrize("discount", [1.0, 0.9, 0.0])
def test_the_limit_truncates_and_keeps_the_discount(tape, discount):
    environment = wrappers.StepLimitWrapper(tape([1.0] * 5, [1.0, discount, 1.0, 1.0, 0.0]), max_steps=2)
    environment.reset()
    middle, last = play(environment, 2)
    assert (middle.step_type, last.step_type) == (MID, LAST)
    assert (last.reward, last.discount) == (1.0, discount)


def test_an_episode_that_ends_at_the_limit_keeps_its_own_end(tape):
    environment = wrappers.StepLimitWrapper(tape([1.0, 1.0]), max_steps=2)
    environment.reset()
    assert (play(environment, 2)[-1].step_type, play(environment, 1)[0].step_type) == (LAST, FIRST)
    assert play(environment, 2)[-1].discount == 0.0


def test_every_episode_gets_the_whole_limit_however_it_begins(tape):
    inner = tape([1.0] * 5)
    environment = wrappers.StepLimitWrapper(inner, max_steps=3)
    types = [timestep.step_type for timestep in play(environment, 8)]
    assert types == [FIRST, MID, MID, LAST, FIRST, MID, MID, LAST]
    environment.reset()
    play(environment, 2)
    environment.reset()  # in the middle of an episode
    assert [timestep.step_type for timestep in play(environment, 4)] == [MID, MID, LAST, FIRST]


def test_the_first_observation_after_the_limit_is_that_of_a_new_episode(tape):
    environment = wrappers.StepLimitWrapper(tape([1.0] * 5), max_steps=1)
    environment.reset()
    assert play(environment, 2)[1].observation.tolist() == [2, 0]


def test_a_limit_below_one_is_refused():
    with pytest.raises(ValueError, match="`max_steps` must be >= 1, got 0. Leave the wrapper out"):
        wrappers.StepLimitWrapper(testing.FakeEnvironment(), max_steps=0)
