import dm_env
import numpy as np
import pytest
from absl.testing import absltest
from dm_env import test_utils

from minerva_acme import environment_loop, specs, testing

NEST = {
    "camera": specs.BoundedArray((4, 4, 3), np.uint8, 0, 255),
    "joints": (specs.Array((3,), np.float32), specs.BoundedArray((2,), np.float64, -1.0, 1.0)),
    "switch": specs.DiscreteArray(2),
    "flag": specs.Array((), bool),
}


class FakeEnvironmentTest(test_utils.EnvironmentTestMixin, absltest.TestCase):
    def make_object_under_test(self):
        return testing.FakeEnvironment(observation_spec=NEST)


@pytest.mark.parametrize(("truncates", "discount"), [(False, 0.0), (True, 1.0)])
def test_an_episode_ends_after_its_length_truly_or_by_a_time_limit(truncates, discount):
    environment = testing.FakeEnvironment(episode_length=3, truncates=truncates)
    environment.reset()
    steps = [environment.step(np.zeros(2, np.float32)) for _ in range(3)]
    assert [step.step_type.name for step in steps] == ["MID", "MID", "LAST"]
    assert [float(step.reward) for step in steps] == [1.0, 2.0, 3.0]
    assert [float(step.discount) for step in steps] == [1.0, 1.0, discount]
    assert environment.step(np.zeros(2, np.float32)).first()


def test_a_seed_reproduces_the_observations_and_another_does_not():
    def observations(seed):
        environment = testing.FakeEnvironment(observation_spec=NEST, seed=seed)
        return [environment.reset().observation for _ in range(3)]

    testing.assert_nests_equal(observations(1), observations(1))
    with pytest.raises(AssertionError):
        testing.assert_nests_equal(observations(1), observations(2))


def test_what_was_given_and_taken_is_remembered():
    environment = testing.FakeEnvironment(episode_length=2)
    action = np.zeros(2, np.float32)
    given = [environment.reset(), environment.step(action), environment.step(action)]
    action[:] = 1.0
    assert all(a is b for a, b in zip(environment.timesteps, given, strict=True))
    np.testing.assert_array_equal(environment.actions, np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (
            {"arm": np.zeros(2, np.float32)},
            r"`action` must have the structure \{'arm': .*, 'grip': .*\}, got",
        ),
        (
            {"arm": np.zeros(2), "grip": np.int32(1)},
            r"`action\['arm'\]` must be BoundedArray\(2,\) float32 in \[-1, 1\], got .*float64",
        ),
        (
            {"arm": np.zeros(3, np.float32), "grip": np.int32(1)},
            r"`action\['arm'\]` must be BoundedArray\(2,\)",
        ),
        ({"arm": np.full(2, 1.5, np.float32), "grip": np.int32(1)}, r"`action\['arm'\]` must be .*1\.5"),
        (
            {"arm": np.full(2, np.nan, np.float32), "grip": np.int32(1)},
            r"`action\['arm'\]` must be .* and finite",
        ),
        ({"arm": np.zeros(2, np.float32), "grip": np.int32(3)}, r"`action\['grip'\]` must be DiscreteArray"),
    ],
)
def test_an_action_that_breaks_its_spec_is_refused_and_its_leaf_named(action, message):
    spec = {"arm": specs.BoundedArray((2,), np.float32, -1.0, 1.0), "grip": specs.DiscreteArray(3)}
    environment = testing.FakeEnvironment(action_spec=spec)
    environment.reset()
    with pytest.raises(ValueError, match=message):
        environment.step(action)
    assert environment.actions == []
    assert environment.step({"arm": np.zeros(2, np.float32), "grip": np.int32(1)}).mid()


def test_an_episode_without_a_step_is_refused():
    with pytest.raises(ValueError, match="`episode_length` must be >= 1 step, got 0"):
        testing.FakeEnvironment(episode_length=0)


def test_the_fakes_play_together():
    actor = testing.FakeActor(np.zeros(2, np.float32))
    logger = testing.FakeLogger()
    loop = environment_loop.EnvironmentLoop(environment=testing.FakeEnvironment(), actor=actor, logger=logger)
    loop.run(num_episodes=2)
    assert [row["episode_return"] for row in logger.rows] == [15.0, 15.0]
    assert (len(actor.timesteps), len(actor.actions), actor.num_updates) == (12, 10, 10)
    assert [timestep.step_type for timestep in actor.timesteps].count(dm_env.StepType.FIRST) == 2
