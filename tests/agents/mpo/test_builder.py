import dataclasses

import numpy as np
import pytest
import torch
import tree

from minerva_acme import core, environments, experiments, replay, specs, testing
from minerva_acme.agents import mpo

SMALL = mpo.MPOConfig(
    policy_layer_sizes=(16,),
    critic_layer_sizes=(16,),
    batch_size=8,
    min_replay_size=20,
    samples_per_insert=2.0,
    num_samples=4,
    retrace_mc_actions=2,
)


def with_spec(spec, **overrides):
    return spec._replace(**overrides)


@pytest.mark.parametrize(
    ("field", "bad", "message"),
    [
        (
            "actions",
            specs.Array((2,), np.float32),
            r"MPO needs actions with finite bounds, low below high, got Array\(2,\) float32",
        ),
        (
            "actions",
            specs.BoundedArray((2,), np.float32, -np.inf, np.inf),
            r"finite bounds, low below high, got BoundedArray\(2,\) float32 in \[-inf, inf\]",
        ),
        (
            "actions",
            specs.BoundedArray((2,), np.float32, 0.0, np.inf),
            r"finite bounds, low below high, got BoundedArray\(2,\) float32 in \[0, inf\]",
        ),
        (
            "actions",
            specs.BoundedArray((2,), np.int32, 0, 3),
            r"MPO needs actions .*got several discrete choices, .* in \[0, 3\]\. Choose an on-policy",
        ),
        (
            "actions",
            {"arm": specs.BoundedArray((2,), np.float32, -1.0, 1.0), "grip": specs.DiscreteArray(3)},
            "one discrete number or one float32 vector, got a nest, {'arm': BoundedArray",
        ),
        ("observations", specs.Array((3,), np.float64), "MPO needs observations in float32 or in integers"),
        ("observations", {}, "MPO needs observations of at least one number"),
        ("observations", {"a": specs.StringArray(())}, r"MPO needs observations that are numbers, .*\['a'\]"),
        ("observations", (), "MPO needs observations of at least one number"),
        ("actions", specs.BoundedArray((0,), np.float32, -1.0, 1.0), "one float32 vector, got BoundedArray"),
        ("actions", specs.BoundedArray((1,), np.float32, 1.0, 1.0), "low below high, got BoundedArray"),
        (
            "rewards",
            specs.Array((2,), np.float32),
            r"MPO needs rewards that are one float32 number, got Array\(2,\)",
        ),
        ("rewards", [specs.Array((), np.float32)], "MPO needs rewards .*got a nest"),
        (
            "discounts",
            specs.Array((), np.float64),
            r"MPO needs discounts .*got Array\(\) float64.*SinglePrecision",
        ),
    ],
)
def test_an_environment_that_it_cannot_handle_is_refused_by_name(spec, field, bad, message):
    with pytest.raises(ValueError, match=message):
        mpo.MPOBuilder(SMALL).check_spec(with_spec(spec, **{field: bad}))


@pytest.mark.parametrize("actions", [specs.DiscreteArray(4), specs.BoundedArray((2,), np.float32, -1.0, 1.0)])
@pytest.mark.parametrize(
    "observations",
    [
        specs.Array((), np.float32),
        specs.DiscreteArray(7),
        specs.Array((8, 8, 3), np.uint8),
        {"camera": specs.Array((8, 8, 3), np.uint8), "speed": specs.Array((3,), np.float32)},
    ],
    ids=["number", "discrete", "image", "nest"],
)
def test_observations_of_any_nest_have_networks(spec, observations, actions):
    builder = mpo.MPOBuilder(SMALL)
    spec = spec._replace(observations=observations, actions=actions)
    builder.check_spec(spec)
    policy = builder.make_policy(
        builder.make_networks(spec, torch.Generator().manual_seed(0)), spec, torch.Generator().manual_seed(0)
    )
    observation = tree.map_structure(lambda leaf: np.zeros(leaf.shape, leaf.dtype), observations)
    actions.validate(policy(observation).action)


def test_learning_keeps_to_the_samples_per_insert(spec):
    config = mpo.MPOConfig(batch_size=256, samples_per_insert=32.0, min_replay_size=1000)
    due = [
        mpo.MPOBuilder(config).learner_steps_due(inserted) for inserted in (0, 999, 1000, 1007, 1008, 9000)
    ]
    assert due == [0, 0, 1, 1, 2, 1001]


@pytest.mark.parametrize("critic_target", ["retrace", "n_step", "one_step"])
def test_each_critic_target_trains_through_reverb(critic_target, tmp_path):
    result = experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=mpo.MPOBuilder(dataclasses.replace(SMALL, critic_target=critic_target)),
            environment_factory=lambda seed: environments.make_training_environment("Pendulum-v1", seed=seed),
            directory=tmp_path,
            num_env_steps=100,
            evaluation_period=0,
            evaluation_episodes=1,
            tensorboard=False,
        )
    )
    assert (result.env_steps, result.learner_steps) == (100, mpo.MPOBuilder(SMALL).learner_steps_due(100 - 4))


class CountingLearner(core.Learner):
    """A learner that learns nothing: it counts the batches that it is given."""

    def __init__(self, dataset, networks):
        self.dataset, self.networks, self.batches = dataset, networks, 0

    def step(self):
        self.batches += len(next(self.dataset).data.reward)

    def get_variables(self, names):
        return [tree.map_structure(lambda x: x.numpy().copy(), dict(self.networks.policy.state_dict()))]

    def save(self):
        return self.batches

    def restore(self, state):
        self.batches = state


class CountingBuilder(mpo.MPOBuilder):
    learner: CountingLearner

    def make_learner(self, parts):
        self.learner = CountingLearner(parts.dataset, parts.networks)
        return self.learner


def test_the_learner_is_swapped_by_overriding_one_factory(tmp_path):
    builder = CountingBuilder(SMALL)
    config = experiments.ExperimentConfig(
        builder=builder,
        environment_factory=lambda seed: environments.make_training_environment("Pendulum-v1", seed=seed),
        directory=tmp_path,
        num_env_steps=60,
        evaluation_period=0,
        evaluation_episodes=1,
        tensorboard=False,
    )
    experiments.run_experiment(config)
    first = builder.learner.batches
    assert first > 0 and first % SMALL.batch_size == 0
    experiments.run_experiment(config)  # Done already: restored, not trained again.
    assert builder.learner.batches == first


def test_the_config_can_be_read_from_the_builder():
    assert mpo.MPOBuilder(SMALL).config is SMALL


@pytest.mark.parametrize(("acting_policy", "variables"), [("online", "policy"), ("target", "target_policy")])
def test_actors_act_by_the_policy_that_the_config_names(acting_policy, variables):
    builder = mpo.MPOBuilder(dataclasses.replace(SMALL, acting_policy=acting_policy))
    assert builder.policy_variables == [variables]


def test_it_explores_in_training_and_takes_the_mean_in_evaluation(spec):
    builder = mpo.MPOBuilder(SMALL)
    networks = builder.make_networks(spec, torch.Generator().manual_seed(0))
    observation = np.ones(3, np.float32)
    for evaluation in (False, True):
        generator = torch.Generator().manual_seed(0)
        policy = builder.make_policy(networks, spec, generator, evaluation=evaluation)
        actions = np.stack([policy(observation).action for _ in range(20)])
        assert (len(np.unique(actions, axis=0)) == 1) == evaluation


def test_sequences_start_a_period_apart(spec):
    builder = mpo.MPOBuilder(dataclasses.replace(SMALL, sequence_length=4, sequence_period=3))
    environment = testing.FakeEnvironment(action_spec=spec.actions, episode_length=20)
    networks = builder.make_networks(spec, torch.Generator().manual_seed(0))
    policy = builder.make_policy(networks, spec, torch.Generator().manual_seed(0))
    inserted = []
    with (
        replay.MemoryServer(builder.make_replay_tables(spec), seed=0) as server,
        builder.make_adder(server.client(), spec) as adder,
    ):
        adder.add_first(environment.reset())
        for _ in range(10):
            action, extras = policy(np.zeros(3, np.float32))
            adder.add(action, environment.step(action), extras)
            inserted.append(adder.num_inserted)
    assert inserted == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]
