import time

import numpy as np

from minerva_acme import wrappers


def play(environment, steps):
    environment.reset()
    for _ in range(steps):
        environment.step(0)


def test_the_last_complete_episode_is_told_from_outside_all_wrappers(tape):
    environment = wrappers.StepLimitWrapper(
        wrappers.EpisodeStatisticsWrapper(tape([1.0, 2.0, 4.0])), max_steps=9
    )
    assert environment.last_episode is None
    play(environment, 2)
    assert environment.last_episode is None
    play(environment, 3)
    assert environment.last_episode[:2] == (7.0, 3)
    play(environment, 1)  # the numbers stay until the next end
    assert environment.last_episode[:2] == (7.0, 3)
    play(environment, 3)
    assert environment.last_episode[:2] == (7.0, 3)


def test_numbers_are_those_of_the_layer_at_which_it_stands(tape):
    environment = wrappers.EpisodeStatisticsWrapper(tape([1.0, 2.0, 4.0]))
    repeated = wrappers.ActionRepeatWrapper(environment, num_repeats=2)
    outer = wrappers.EpisodeStatisticsWrapper(repeated)
    play(outer, 2)
    assert environment.last_episode[:2] == (7.0, 3)
    assert outer.last_episode[:2] == (7.0, 2)


def test_the_return_is_summed_by_leaf_in_double_precision(tape):
    reward = {"run": np.float32(1e-8), "jump": np.float32([1.0, 2.0])}
    rewards = [{"run": np.float32(1.0), "jump": np.float32([1.0, 2.0])}, *[reward] * 3]
    environment = wrappers.EpisodeStatisticsWrapper(tape(rewards))
    play(environment, 4)
    total = environment.last_episode.episode_return
    assert total["run"] - 1.0 == 3 * np.float64(np.float32(1e-8))
    np.testing.assert_array_equal(total["jump"], [4.0, 8.0])


def test_the_seconds_are_those_from_first_to_last(tape):
    class Slow(tape):
        def step(self, action):
            time.sleep(0.01)
            return super().step(action)

    environment = wrappers.EpisodeStatisticsWrapper(Slow([1.0] * 3))
    play(environment, 3)
    assert 0.03 <= environment.last_episode.seconds < 1.0
