"""What is R2D2's own: how its environments explore, and that every step of an episode is learned from."""

import dataclasses
from typing import ClassVar

import dm_env
import numpy as np
import pytest
import torch

from minerva_acme import learners, replay, runs, testing
from minerva_acme.agents import r2d2, registry

from .. import transition_scene as scene

SPEC = scene.make_spec(discrete=True)
TINY = {
    "memory_size": 4,
    "layer_sizes": (8,),
    "burn_in": 3,
    "sequence_length": 4,
    "sequence_period": 2,
    "num_environments": 1,
    "batch_size": 4,
    "samples_per_insert": 4.0,
    "min_replay_size": 4,
}


def make(**overrides):
    return r2d2.R2D2Builder(r2d2.R2D2Config(**{**TINY, **overrides}))


# The table and what is written.


def test_the_agent_has_its_name_and_presets():
    entry = registry.find("r2d2")
    assert (entry.builder, entry.config) == (r2d2.R2D2Builder, r2d2.R2D2Config)
    assert make().name == entry.title
    assert entry.presets["memory"] == entry.presets["default"] == r2d2.R2D2Config()
    acme = entry.presets["acme"]
    assert (acme.burn_in, acme.sequence_length, acme.sequence_period, acme.discount) == (40, 80, 40, 0.997)
    assert (acme.n_step, acme.learning_rate, acme.target_update_period, acme.batch_size) == (
        5,
        1e-3,
        2500,
        64,
    )
    assert (acme.priority_exponent, acme.importance_exponent, acme.max_priority_share) == (0.9, 0.6, 0.9)


@pytest.mark.parametrize(("kind", "size"), [("lstm", 2), ("gru", 1)])
def test_the_state_is_stored_unless_the_memory_starts_from_its_initial_one(kind, size):
    states = make(memory=kind).state_spec(SPEC)
    assert [spec.shape for spec in states] == [(4,)] * size
    (table,) = make(memory=kind).make_replay_tables(SPEC)
    assert table.signature.columns["state/float32"] == replay.ColumnSpec((4 * size,), np.dtype(np.float32))
    (table,) = make(memory=kind, stored_state=False).make_replay_tables(SPEC)
    assert [*table.signature.columns] == ["float32", "int32"]
    assert make(stored_state=False).state_spec(SPEC) == make(stored_state=False).extras_spec(SPEC) == ()


@pytest.mark.parametrize("stored_state", [True, False])
@pytest.mark.parametrize("num_steps", [1, 2, 3, 9])
def test_every_step_of_an_episode_is_in_a_loss_however_short_it_is(num_steps, stored_state):
    """The reward of each step changes the loss of some sequence, and one that is 3 times as large more."""
    builder = make(stored_state=stored_state, n_step=1, min_replay_size=1)
    networks = builder.make_networks(SPEC, torch.Generator().manual_seed(0))
    policy = builder.make_policy(networks, SPEC, torch.Generator().manual_seed(0))
    with (
        replay.make_server(builder.make_replay_tables(SPEC), "memory", seed=0) as server,
        server.client() as client,
        builder.make_adder(client, SPEC) as adder,
    ):
        actor = builder.make_actor(policy, adder=adder)
        random = np.random.default_rng(num_steps)
        observations = random.normal(size=(num_steps + 1, 3)).astype(np.float32)
        actor.observe_first(dm_env.restart(observations[0]))
        for t in range(num_steps):
            action = actor.select_action(observations[t])
            make_step = dm_env.termination if t == num_steps - 1 else dm_env.transition
            timestep = make_step(np.float32(t + 1), observations[t + 1])
            actor.observe(action, timestep._replace(discount=np.float32(t < num_steps - 1)))
        with client.sampler("replay") as sampler:
            _, fields = sampler.sample_batch(256)
    data = builder.make_layout(SPEC).unpack({name: torch.from_numpy(rows) for name, rows in fields.items()})
    assert data.mask.shape == (256, 7)

    def loss(data):
        (objective,) = builder.make_objectives(SPEC).values()
        return objective.loss(networks, learners.Batch(data, 1.0), None).value.item()

    for t in range(num_steps):
        changed = torch.where(data.reward == t + 1, data.reward + 5.0, data.reward)
        assert loss(data._replace(reward=changed)) != loss(data)

    # The stored state is that which the network reaches from the beginning of the episode.
    state = networks.q_network.memory.initial_state(1)
    states = {}
    for observation in observations:
        states[observation.tobytes()] = [part[0] for part in state]
        with torch.no_grad():
            _, state = networks.q_network.remember(torch.from_numpy(observation[None]), state)
    for b in range(256 if stored_state else 0):
        reached = states[data.observation[b, 0].numpy().tobytes()]
        for part, expected in zip(data.state, reached, strict=True):
            torch.testing.assert_close(part[b], expected)


# The loss.


def test_the_importance_exponent_stays_as_it_is_in_a_run_of_known_length():
    made = make(importance_exponent=0.6).make_priorities(object(), lambda step: step / 100)
    info = replay.SampleInfo(*[np.array([1, 4])] * 5)._replace(probability=np.array([0.1, 0.4]))
    for step in (0, 100):
        torch.testing.assert_close(made.weights(info, step), torch.tensor([1.0, 16.0**-0.6]))


# Acting.


def test_environments_of_all_actors_explore_from_the_first_epsilon_to_its_power():
    builder = make(num_environments=3, first_epsilon=0.5, epsilon_exponent=4.0).for_actors(2)
    found = []
    for index in range(2):
        builder.actor_index = index
        found += builder.epsilons
    assert found == pytest.approx([0.5 ** (1.0 + 4.0 * i / 5.0) for i in range(6)])
    assert make(first_epsilon=0.4).epsilons == pytest.approx([0.4**4.5])


def test_the_index_of_an_actor_says_how_much_it_explores_and_evaluation_is_greedy():
    builder = make(num_environments=2, first_epsilon=1.0, epsilon_exponent=0.0)
    networks = builder.make_networks(SPEC, torch.Generator().manual_seed(0))
    networks.q_network.critic.members[0].advantage.head.bias.data[1] = 100.0
    spread = dataclasses.replace(builder.config, first_epsilon=0.3, epsilon_exponent=30.0)

    def share_of_others(evaluation=False, **arguments):
        """In each of two environments, the share of steps with another action than the best."""
        actors = r2d2.R2D2Builder(spread).for_actors(2)
        policy = actors.make_policy(networks, SPEC, torch.Generator().manual_seed(0), evaluation, **arguments)
        state, actions = policy.initial_state(2), []
        for _ in range(200):
            output, state = policy.step(np.ones((2, 3), np.float32), state)
            actions.append(output.action)
        return (np.stack(actions) != 1).mean(axis=0)

    np.testing.assert_allclose(share_of_others(), [0.2, 0.0], atol=0.08)
    np.testing.assert_allclose(share_of_others(actor_index=1), [0.0, 0.0], atol=0.01)
    assert (share_of_others(evaluation=True) == 0.0).all()
    policy = builder.make_policy(networks, SPEC, torch.Generator())  # a share of 1 in all environments
    output, _ = policy.step(np.ones((2, 3), np.float32), policy.initial_state(2))
    testing.assert_nests_equal(output.extras.state, policy.initial_state(2))
    greedy = builder.make_policy(networks, SPEC, torch.Generator(), evaluation=True)
    assert greedy(np.ones(3, np.float32)).extras == ()


def make_environment(seed):
    return testing.FakeEnvironment(
        observation_spec=SPEC.observations, action_spec=SPEC.actions, episode_length=5 + seed % 3
    )


class Recording(r2d2.R2D2Builder):
    """Keeps the batches that it learns from."""

    seen: ClassVar[list] = []

    def make_objectives(self, spec):
        (objective,) = super().make_objectives(spec).values()

        def loss(nets, batch, generator):
            self.seen.append(batch.data)
            return objective.loss(nets, batch, generator)

        return {"q_network": objective._replace(loss=loss)}


def test_an_experiment_learns_from_stored_states_and_its_policy_is_loaded(run):
    Recording.seen.clear()
    builder = Recording(r2d2.R2D2Config(**{**TINY, "num_environments": 3}))
    result = run(builder, make_environment, 30)
    assert result.learner_steps == len(Recording.seen) > 5
    assert any(leaf.any() for data in Recording.seen for leaf in data.state)
    for data in Recording.seen:
        begins = data.mask[:, 0] == 0  # in the burn-in, so that the stored state is that of no step
        assert all((leaf[begins] == 0).all() for leaf in data.state)
    policy = runs.load_policy(result.directory, builder=builder)
    observation = np.ones(3, np.float32)
    first = [policy(observation).action for _ in range(3)]
    policy.reset()
    assert [policy(observation).action for _ in range(3)] == first
    assert [leaf.shape for leaf in policy.initial_state(2)] == [(2, 4)] * 2
