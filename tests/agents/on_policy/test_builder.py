"""What on-policy agents play in, and what they refuse."""

import contextlib
import logging
import threading

import numpy as np
import torch

from minerva_acme import replay, testing


def test_a_learner_step_is_due_for_each_rollout_of_all_environments(agent):
    builder = agent.builder(num_environments=3, rollout_steps=12)
    assert [builder.learner_steps_due(count) for count in range(8)] == [0, 0, 0, 1, 1, 1, 2, 2]


def test_the_queue_has_room_for_the_rollouts_of_all_environments(agent, spec):
    builder = agent.builder(num_environments=3, rollout_steps=12)
    (table,) = builder.make_replay_tables(spec)
    assert table.max_times_sampled == 1
    assert table.max_size >= 3
    assert all(field.length == 4 for field in table.signature.fields.values())


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
