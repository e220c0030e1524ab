import dm_env
import numpy as np
import pytest
import torch
import tree
from absl.testing import absltest
from dm_env import test_utils

from minerva_acme import environments, specs, testing, types

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
            r"`action` must have the fields \['arm', 'grip'\], got",
        ),
        (
            {"arm": np.zeros(2), "grip": np.int32(1)},
            r"`action\['arm'\]` must be float32 of shape \(2,\), got float64",
        ),
        (
            {"arm": np.zeros(3, np.float32), "grip": np.int32(1)},
            r"`action\['arm'\]` must be .* \(2,\), got .* \(3,\)",
        ),
        (
            {"arm": np.full(2, 1.5, np.float32), "grip": np.int32(1)},
            r"`action\['arm'\]` must be in \[-1, 1\].*1\.5",
        ),
        (
            {"arm": np.full(2, np.nan, np.float32), "grip": np.int32(1)},
            r"`action\['arm'\]` must be finite, got nan",
        ),
        (
            {"arm": np.zeros(2, np.float32), "grip": np.int32(3)},
            r"`action\['grip'\]` must be in \[0, 2\]",
        ),
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


@pytest.mark.parametrize("variant", ["continuous", "bounded", "discrete", "nested"])
def test_each_variant_plays_an_episode_within_its_specs(variant):
    environment = getattr(testing.FakeEnvironment, variant)(episode_length=4, truncates=True)
    spec = specs.make_environment_spec(environment)
    action = tree.map_structure(lambda leaf: leaf.generate_value(), spec.actions)
    actor = testing.FakeActor(action, spec)
    result = environments.EnvironmentLoop(environment=environment, actor=actor).run_episode()
    assert (result["episode_length"], result["episode_return"]) == (4, 10.0)
    for timestep in environment.timesteps:
        testing.check_timestep(timestep, spec)


def test_the_variants_are_what_their_names_say():
    fake = testing.FakeEnvironment
    assert type(fake.continuous(action_size=4).action_spec()) is specs.Array
    assert fake.continuous(action_size=4).action_spec().shape == (4,)
    low, high = specs.bounds(fake.bounded(observation_size=2).observation_spec())
    assert (low.tolist(), high.tolist()) == ([-1.0, -2.0], [1.0, 3.0])
    assert fake.discrete(num_actions=9).action_spec().num_values == 9
    assert sorted(fake.nested().observation_spec()) == ["camera", "gear", "joints"]
    assert sorted(fake.nested().action_spec()) == ["arm", "grip"]


def test_a_nest_of_rewards_and_discounts_holds_the_step_in_every_leaf():
    environment = testing.FakeEnvironment(
        episode_length=2,
        reward_spec={"a": specs.Array((), np.float64), "b": specs.Array((2,), np.int32)},
        discount_spec=specs.BoundedArray((2,), np.float32, 0.0, 1.0),
    )
    environment.reset()
    steps = [environment.step(np.zeros(2, np.float32)) for _ in range(2)]
    assert [step.reward["a"] for step in steps] == [1.0, 2.0]
    assert [step.reward["b"].tolist() for step in steps] == [[1, 1], [2, 2]]
    assert [step.discount.tolist() for step in steps] == [[1.0, 1.0], [0.0, 0.0]]


def test_an_actor_that_was_given_specs_names_the_leaf_that_breaks_them():
    nested, flat = testing.FakeEnvironment.nested(), testing.FakeEnvironment()
    first, other = nested.reset(), flat.reset()
    actor = testing.FakeActor(np.zeros(3, np.float32), specs.make_environment_spec(nested))
    actor.observe_first(first)
    with pytest.raises(ValueError, match="`observation` must have the fields"):
        actor.select_action(other.observation)
    with pytest.raises(ValueError, match="`reward` of a FIRST timestep must be None, got 1.0"):
        actor.observe_first(first._replace(reward=1.0))
    with pytest.raises(ValueError, match="`action` must have the fields"):
        actor.observe(np.zeros(3, np.float32), first)
    assert len(actor.timesteps) == 1 and actor.actions == []


def test_a_learner_that_was_given_a_dataset_takes_a_batch_a_step_and_checks_it():
    spec = types.Transition(*[specs.Array((4, 2), np.float32)] * 5)
    right = types.Transition(*[torch.zeros(4, 2)] * 5)
    batches = iter([right, right, right._replace(reward=torch.zeros(4))])
    learner = testing.FakeLearner(batches, spec)
    learner.run(num_steps=2)
    with pytest.raises(ValueError, match=r"`batch\.reward` must be float32 of shape \(4, 2\)"):
        learner.step()
    assert learner.save() == {"num_steps": 2}


def test_a_repeated_batch_is_a_dataset_of_one_batch():
    batch = types.Transition(*[torch.zeros(4, 2)] * 5)
    dataset = testing.RepeatedBatch(batch, batch_size=4)
    samples = [next(dataset) for _ in range(3)]
    assert all(sample.data is batch for sample in samples)
    assert [part.shape for part in samples[0].info] == [(4,)] * 5
    np.testing.assert_array_equal(samples[0].info.probability, 0.25)
    dataset.close()


def test_an_episode_without_a_step_is_refused():
    with pytest.raises(ValueError, match="`episode_length` must be >= 1 step, got 0"):
        testing.FakeEnvironment(episode_length=0)


def test_the_fakes_play_together():
    actor = testing.FakeActor(np.zeros(2, np.float32))
    logger = testing.FakeLogger()
    loop = environments.EnvironmentLoop(environment=testing.FakeEnvironment(), actor=actor, logger=logger)
    loop.run(num_episodes=2)
    assert [row["episode_return"] for row in logger.rows] == [15.0, 15.0]
    assert (len(actor.timesteps), len(actor.actions), actor.num_updates) == (12, 10, 10)
    assert [timestep.step_type for timestep in actor.timesteps].count(dm_env.StepType.FIRST) == 2
