import numpy as np
import pytest

from minerva_acme import environments, testing, wrappers

NOOP = np.int32(2)


def wrap(environment, max_noops, seed=0, noop_action=NOOP):
    return wrappers.NoopStartsWrapper(
        environment, noop_action=noop_action, max_noops=max_noops, random=np.random.default_rng(seed)
    )


def test_the_noops_are_drawn_evenly_and_nobody_sees_them(tape):
    inner = tape([1.0] * 9)
    environment = wrap(inner, max_noops=3)
    numbers = []
    for _ in range(400):
        before = len(inner.actions)
        timestep = environment.reset()
        assert timestep.first() and timestep.reward is None and timestep.discount is None
        numbers.append(len(inner.actions) - before)
        assert timestep.observation[1] == numbers[-1]
    assert set(map(int, inner.actions)) == {2}
    counts = np.bincount(numbers)
    assert len(counts) == 4 and counts.min() > 70  # 100 expected, standard deviation 9


def test_the_actions_after_the_start_arrive_and_the_first_reward_is_theirs(tape):
    inner = tape([float(2**i) for i in range(9)])
    environment = wrap(inner, max_noops=3, seed=1)
    noops = int(environment.reset().observation[1])
    assert noops > 0
    assert environment.step(np.int32(1)).reward == 2.0**noops
    assert [int(action) for action in inner.actions] == [2] * noops + [1]


def test_steps_that_reset_make_noops_too(tape):
    inner = tape([1.0] * 2)
    environment = wrap(inner, max_noops=1, seed=0)
    starts = []
    for _ in range(100):
        timestep = environment.step(np.int32(0))
        if timestep.first():
            starts.append(int(timestep.observation[1]))
    assert set(starts) == {0, 1}


def test_an_episode_that_ends_among_the_noops_is_followed_by_another(tape):
    environment = wrap(tape([1.0, 1.0]), max_noops=7)
    for _ in range(50):
        timestep = environment.reset()
        assert timestep.first() and timestep.observation[1] < 2
        assert not environment.step(np.int32(0)).first()


def test_a_saved_wrapper_goes_on_with_the_same_starts():
    def make(seed):
        inner = environments.make("dm_control/cartpole/swingup", seed)
        return wrap(inner, max_noops=5, seed=seed, noop_action=np.zeros(1))

    def starts(environment):
        return [environment.reset().observation["position"] for _ in range(4)]

    environment, resumed = make(0), make(1)
    starts(environment)
    resumed.restore(testing.through_a_file(environment.save()))
    assert resumed.step(np.zeros(1)).first()
    resumed.restore(testing.through_a_file(environment.save()))
    expected = starts(environment)
    np.testing.assert_array_equal(starts(resumed), expected)
    resumed.seed(7)
    reseeded = starts(resumed)
    assert not np.array_equal(reseeded, expected)
    resumed.seed(7)
    np.testing.assert_array_equal(starts(resumed), reseeded)


def test_an_environment_without_a_state_leaves_the_number_of_noops_to_save(tape):
    environment, resumed = wrap(tape([1.0] * 9), 5), wrap(tape([1.0] * 9), 5, seed=1)
    environment.reset()
    resumed.restore(testing.through_a_file(environment.save()))
    for _ in range(5):
        assert environment.reset().observation[1] == resumed.reset().observation[1]


def test_wrong_settings_are_refused(tape):
    with pytest.raises(ValueError, match="`max_noops` must be >= 0, got -1"):
        wrap(tape([1.0]), max_noops=-1)
    with pytest.raises(ValueError, match=r"`noop_action` must be in \[0, 2\], .*got 3\. Correct it"):
        wrap(tape([1.0]), max_noops=1, noop_action=np.int32(3))


def test_a_seed_gives_the_noops_other_numbers_than_the_environment(tape):
    class Seeded(type(tape([1.0]))):
        def seed(self, seed):
            self.random = np.random.default_rng(seed)

    inner = tape([1.0] * 50)
    inner.__class__ = Seeded
    environment = wrap(inner, max_noops=10)
    environment.seed(5)
    starts, noops = [], []
    for _ in range(30):
        before = len(inner.actions)
        environment.reset()
        noops.append(len(inner.actions) - before)
        starts.append(inner.random.integers(10, endpoint=True))
    assert sum(np.equal(starts, noops)) < 10  # of 30; 3 expected
