"""What on-policy agents play in, and what they refuse."""

import contextlib
import logging
import threading

import dm_env
import numpy as np
import pytest
import torch

from minerva_acme import replay, specs, testing

GRIPPER = {"arm": specs.BoundedArray((2,), np.float32, -1.0, 1.0), "grip": specs.DiscreteArray(3)}


@pytest.mark.parametrize(
    ("field", "bad", "message"),
    [
        (
            "actions",
            GRIPPER,
            "needs actions that are one discrete number or one float32 vector, got a nest, .*"
            "Mixed and nested actions must be joined in a wrapper",
        ),
        (
            "actions",
            [specs.DiscreteArray(3)],
            "needs actions that are one discrete number or one float32 vector, got a nest",
        ),
        (
            "actions",
            specs.BoundedArray((), np.int32, 0, 3),
            r"needs actions that are one float32 vector, got BoundedArray\(\) int32 in \[0, 3\]. "
            ".*a single discrete action must have a DiscreteArray as its spec",
        ),
        (
            "actions",
            specs.BoundedArray((2,), np.int32, [0, 0], [3, 99_999]),
            "needs discrete choices of 1 to 10000 values each, "
            r"got BoundedArray\(2,\) int32 in \[0, 3\], \[0, 99999\]",
        ),
        ("actions", specs.BoundedArray((), np.float32, -1.0, 1.0), r"got BoundedArray\(\) float32"),
        (
            "actions",
            specs.BoundedArray((2,), np.float64, -1.0, 1.0),
            r"got BoundedArray\(2,\) float64 .*SinglePrecisionWrapper casts",
        ),
        ("actions", specs.BoundedArray((0,), np.float32, -1.0, 1.0), "one float32 vector, got BoundedArray"),
        (
            "actions",
            specs.Array((2,), np.float32),
            r"needs actions with finite bounds, low below high, got Array\(2,\) float32. "
            "Bound them in the environment's action_spec",
        ),
        (
            "actions",
            specs.BoundedArray((2,), np.float32, -1.0, np.inf),
            r"needs actions with finite bounds, low below high, got BoundedArray\(2,\) .* in \[-1, inf\]",
        ),
        ("actions", specs.BoundedArray((1,), np.float32, 1.0, 1.0), "low below high, got BoundedArray"),
        (
            "rewards",
            specs.Array((2,), np.float32),
            r"needs rewards that are one float32 number, got Array\(2,\)",
        ),
        ("discounts", specs.Array((), np.float64), r"needs discounts .*got Array\(\) float64"),
    ],
)
def test_an_environment_that_it_cannot_handle_is_refused_by_name(agent, spec, field, bad, message):
    name = {"ppo": "PPO", "vmpo": "V-MPO"}[agent.name]
    with pytest.raises(ValueError, match=f"^{name} .*{message}"):
        agent.builder().check_spec(spec._replace(**{field: bad}))


def test_discrete_and_bounded_actions_are_taken(agent, spec):
    assert agent.builder().check_spec(spec) is None


def test_a_learner_step_is_due_for_each_rollout_of_all_environments(agent):
    builder = agent.builder(num_environments=3, rollout_steps=12)
    assert [builder.learner_steps_due(count) for count in range(8)] == [0, 0, 0, 1, 1, 1, 2, 2]


def test_the_queue_has_room_for_the_rollouts_of_all_environments(agent, spec):
    builder = agent.builder(num_environments=3, rollout_steps=12)
    (table,) = builder.make_replay_tables(spec)
    assert table.max_times_sampled == 1
    assert table.max_size >= 3
    assert all(field.length == 4 for field in table.signature.fields.values())


class Spoilt(dm_env.Environment):
    """A fake whose seventh timestep is not finite."""

    def __init__(self, field, value):
        self._fake = testing.FakeEnvironment(episode_length=5)
        self._field, self._value = field, value
        self._count = 0

    def reset(self):
        return self._spoil(self._fake.reset())

    def step(self, action):
        return self._spoil(self._fake.step(action))

    def _spoil(self, timestep):
        self._count += 1
        if self._count < 9:
            return timestep
        old = getattr(timestep, self._field)
        return timestep._replace(**{self._field: np.full_like(old, self._value)})

    def observation_spec(self):
        return self._fake.observation_spec()

    def action_spec(self):
        return self._fake.action_spec()

    def reward_spec(self):
        return self._fake.reward_spec()

    def discount_spec(self):
        return self._fake.discount_spec()


@pytest.mark.parametrize("num_environments", [1, 2])
@pytest.mark.parametrize(
    ("field", "value"), [("reward", np.nan), ("reward", -np.inf), ("observation", np.nan)]
)
def test_what_an_environment_gives_that_is_not_finite_is_an_error(agent, run, field, value, num_environments):
    training = []

    def make_environment(seed):
        # Evaluations have environments of their own, which stay sound.
        if len(training) < num_environments:
            training.append(Spoilt(field, value))
            return training[-1]
        return testing.FakeEnvironment(episode_length=5)

    with pytest.raises(ValueError, match=f"`{field}` must be finite"):
        run(agent.builder(num_environments=num_environments), make_environment, 64)


def test_steps_of_an_unfinished_rollout_are_no_secret(agent, run, caplog):
    caplog.set_level(logging.INFO)
    run(agent.builder(rollout_steps=16), lambda seed: testing.FakeEnvironment(), 20)
    assert "dropped 4 steps of an unfinished rollout of 16" in caplog.text


def test_its_adder_sums_rewards_by_the_discount_and_not_by_lambda(agent, spec):
    builder = agent.builder(rollout_steps=4, discount=0.5, gae_lambda=0.25)
    with replay.MemoryServer(builder.make_replay_tables(spec), seed=0) as server:
        client = server.client()
        dataset = builder.make_dataset(client, spec, torch.device("cpu"))
        environment = testing.FakeEnvironment(action_spec=spec.actions, episode_length=9)
        network = builder.make_networks(spec, torch.Generator().manual_seed(0))
        policy = builder.make_policy(network, spec, torch.Generator().manual_seed(0))
        with builder.make_adder(client, spec) as adder:
            adder.add_first(environment.reset())
            for _ in range(4):
                action, extras = policy(np.zeros(3, np.float32))
                adder.add(action, environment.step(action), extras)
            rollout = next(dataset).data
        dataset.close()
    assert rollout.reward.flatten().tolist() == [1.0, 2.0, 3.0, 4.0]
    assert rollout.return_so_far.flatten().tolist() == [1.0, 2.5, 4.25, 6.125]


def test_it_explores_in_training_and_takes_the_mode_in_evaluation(agent, spec):
    builder = agent.builder()
    network = builder.make_networks(spec, torch.Generator().manual_seed(0))
    observation = np.ones(3, np.float32)
    for evaluation in (False, True):
        generator = torch.Generator().manual_seed(0)
        policy = builder.make_policy(network, spec, generator, evaluation=evaluation)
        actions = np.stack([policy(observation).action for _ in range(20)])
        assert (len(np.unique(actions, axis=0)) == 1) == evaluation


def test_a_rollout_stays_in_the_queue_until_a_learner_step_asks_for_it(agent, spec):
    builder = agent.builder(rollout_steps=4)
    environment = testing.FakeEnvironment(action_spec=spec.actions, episode_length=9)
    network = builder.make_networks(spec, torch.Generator().manual_seed(0))
    policy = builder.make_policy(network, spec, torch.Generator().manual_seed(0))
    with contextlib.ExitStack() as resources:
        server = resources.enter_context(replay.MemoryServer(builder.make_replay_tables(spec), seed=0))
        client = server.client()
        adder = resources.enter_context(builder.make_adder(client, spec))
        dataset = resources.enter_context(builder.make_dataset(client, spec, torch.device("cpu")))
        adder.add_first(environment.reset())
        for _ in range(8):
            action, extras = policy(np.zeros(3, np.float32))
            adder.add(action, environment.step(action), extras)
        threads = threading.enumerate()
        (table,) = builder.make_replay_tables(spec)
        assert client.table_info(table.name).size == 2
        next(dataset)
        assert client.table_info(table.name).size == 1
        assert threading.enumerate() == threads  # nobody else asks
