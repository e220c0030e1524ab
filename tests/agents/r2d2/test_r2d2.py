"""What is R2D2's own: how its environments explore, and that every step of an episode is learned from."""

import dataclasses
from typing import ClassVar

import dm_env
import numpy as np
import pytest
import torch

from minerva_acme import builders, counting, experiments, learners, replay, runs, testing, types
from minerva_acme.agents import acting, r2d2, registry

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


def make_batch(builder, seed=0, mask=((0, 1, 1, 1, 1, 1, 1), (1, 1, 1, 1, 1, 0, 0)), dtype=torch.float32):
    """Any sequences of b + T steps with this mask."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.tensor(mask, dtype=dtype)
    batch, steps = mask.shape

    def normal(*shape):
        return torch.randn(batch, *shape, generator=generator, dtype=dtype)

    state = tuple(normal(*spec.shape) for spec in builder.state_spec(SPEC))
    return types.Trajectory(
        observation=normal(steps + 1, 3),
        action=torch.randint(scene.NUM_ACTIONS, (batch, steps), generator=generator, dtype=torch.int32),
        reward=normal(steps),
        discount=(torch.rand(batch, steps, generator=generator) < 0.9).to(dtype),
        mask=mask,
        extras=acting.BehaviourExtras(),
        state=state,
    )


def compute(builder, data, weights=1.0, seed=0):
    """The loss on a batch, and the gradients of all weights."""
    networks = builder.make_networks(SPEC, torch.Generator().manual_seed(seed))
    (objective,) = builder.make_objectives(SPEC).values()
    loss = objective.loss(networks, learners.Batch(data, weights), None)
    loss.value.backward()
    assert all(parameter.grad is None for parameter in networks.target_network.parameters())
    return loss, [parameter.grad for parameter in networks.q_network.parameters()]


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


def test_continuous_actions_and_no_memory_are_refused():
    with pytest.raises(ValueError, match="R2D2 needs one discrete action"):
        make().check_spec(scene.make_spec())
    with pytest.raises(ValueError, match=r"`memory` must be one of \('lstm', 'gru'\), got 'none'."):
        make(memory="none")


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
def test_every_step_of_an_episode_is_in_a_loss_even_if_it_is_shorter_than_the_burn_in(
    num_steps, stored_state
):
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


@pytest.mark.parametrize("burn_in", [0, 3])
@pytest.mark.parametrize("double", [True, False])
def test_padding_may_hold_anything(burn_in, double):
    builder = make(burn_in=burn_in, sequence_length=7 - burn_in, double=double)
    data, other = make_batch(builder), make_batch(builder, seed=1)
    used = torch.nn.functional.pad(data.mask, (1, 0)) + torch.nn.functional.pad(data.mask, (0, 1)) > 0

    def mix(mask, one, two):
        return torch.where(mask.view(*mask.shape, *[1] * (one.ndim - 2)) > 0, one, two)

    changed = data._replace(
        observation=mix(used, data.observation, 100.0 * other.observation),
        action=mix(data.mask, data.action, other.action),
        reward=mix(data.mask, data.reward, other.reward),
        discount=mix(data.mask, data.discount, other.discount),
        state=tuple(
            torch.where(data.mask[:, :1] > 0, one, two)
            for one, two in zip(data.state, other.state, strict=True)
        ),
    )
    (loss, gradients), (same, same_gradients) = compute(builder, data), compute(builder, changed)
    torch.testing.assert_close(loss.value, same.value)
    torch.testing.assert_close(loss.priorities, same.priorities)
    torch.testing.assert_close(gradients, same_gradients)
    for name in ("q/mean", "q/target"):
        torch.testing.assert_close(loss.metrics[name], same.metrics[name])


def test_steps_of_the_burn_in_are_in_no_loss_but_warm_up_the_memory():
    builder = make()
    data = make_batch(builder, mask=[[1] * 7] * 3)
    (plain, _) = compute(builder, data)

    def change(name, t):
        changed = getattr(data, name).clone()
        changed[:, t] += 1
        return compute(builder, data._replace(**{name: changed}))[0].value

    assert change("reward", 2) == plain.value != change("reward", 3)
    assert change("observation", 1) != plain.value
    other = data._replace(state=tuple(2.0 * part for part in data.state))
    assert compute(builder, other)[0].value != plain.value
    fresh = make(stored_state=False)
    assert compute(fresh, data._replace(state=()))[0].value != plain.value


def test_weights_scale_the_losses_of_sequences_and_not_their_priorities():
    builder = make()
    data = make_batch(builder)
    loss, _ = compute(builder, data)
    each = []
    for b in range(2):
        weights = torch.eye(2)[b]
        weighted, _ = compute(builder, data, weights)
        torch.testing.assert_close(weighted.priorities, loss.priorities)
        each.append(weighted.value)
    torch.testing.assert_close(sum(each), loss.value)
    assert loss.priorities.shape == (2,) and (loss.priorities > 0).all()


def test_the_importance_exponent_stays_as_it_is_in_a_run_of_known_length():
    made = make(importance_exponent=0.6).make_priorities(object(), lambda step: step / 100)
    info = replay.SampleInfo(*[np.array([1, 4])] * 5)._replace(probability=np.array([0.1, 0.4]))
    for step in (0, 100):
        torch.testing.assert_close(made.weights(info, step), torch.tensor([1.0, 16.0**-0.6]))


@pytest.mark.parametrize("dueling", [True, False])
def test_values_of_a_dueling_network_are_relative_to_their_mean(dueling):
    networks = make(dueling=dueling).make_networks(SPEC, torch.Generator().manual_seed(0))
    (member,) = networks.q_network.critic.members
    assert hasattr(member, "advantage") == dueling
    builder = make(dueling=dueling)
    loss, gradients = compute(builder, make_batch(builder))
    assert loss.value > 0 and all(gradient.abs().sum() > 0 for gradient in gradients)


@pytest.mark.parametrize("epsilon", [1e-3, 3.0])
def test_the_optimiser_takes_adams_epsilon_from_the_config(epsilon):
    generator = torch.Generator().manual_seed(0)
    weights = torch.nn.Parameter(torch.randn(50, generator=generator))
    before, weights.grad = weights.detach().clone(), torch.randn(50, generator=generator)
    optimizer = make(adam_epsilon=epsilon).make_optimizer("q_network", [{"params": [weights], "lr": 0.1}])
    optimizer.step()
    # After one step, the moments of Adam without their bias are the gradient and its square.
    expected = before - 0.1 * weights.grad / (weights.grad.abs() + epsilon)
    torch.testing.assert_close(weights.detach(), expected, rtol=1e-5, atol=1e-6)


class TestLearner(testing.LearnerConformance):
    names = ("q_network", "target_network")

    def make_learner(self):
        builder = make(prioritized=False)
        networks = builder.make_networks(SPEC, torch.Generator().manual_seed(0))
        return builder.make_learner(
            builders.LearnerParts(
                networks=networks,
                dataset=testing.RepeatedBatch(make_batch(builder)),
                spec=SPEC,
                counter=counting.Counter(),
                logger=testing.FakeLogger(),
                generator=torch.Generator().manual_seed(0),
                device=torch.device("cpu"),
            )
        )


# Acting.


class TestActor(testing.ActorConformance):
    def make_environment(self):
        return testing.FakeEnvironment(observation_spec=SPEC.observations, action_spec=SPEC.actions)

    def make_actor(self):
        return self.make_actor_with(None)

    def make_actor_with(self, adder):
        builder = make()
        networks = builder.make_networks(SPEC, torch.Generator().manual_seed(0))
        return builder.make_actor(builder.make_policy(networks, SPEC, torch.Generator()), adder=adder)


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
        for _ in range(400):
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


@pytest.mark.parametrize(
    ("backend", "num_environments"), [("memory", 3), pytest.param("reverb", 1, marks=pytest.mark.reverb)]
)
def test_an_experiment_learns_from_stored_states_and_its_policy_is_loaded(
    tmp_path, backend, num_environments
):
    if backend == "reverb":
        pytest.importorskip("reverb")
    Recording.seen.clear()
    builder = Recording(r2d2.R2D2Config(**{**TINY, "num_environments": num_environments}))
    result = experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=builder,
            environment_factory=make_environment,
            directory=tmp_path / "run",
            num_env_steps=60,
            replay=backend,
            evaluation_episodes=1,
            tensorboard=False,
        )
    )
    assert result.learner_steps == len(Recording.seen) > 5
    assert any(leaf.any() for data in Recording.seen for leaf in data.state)
    for data in Recording.seen:
        begins = data.mask[:, 0] == 0  # in the burn-in, so that the stored state is that of no step
        assert all((leaf[begins] == 0).all() for leaf in data.state)
    policy = runs.load_policy(tmp_path / "run", builder=builder)
    observation = np.ones(3, np.float32)
    first = [policy(observation).action for _ in range(3)]
    policy.reset()
    assert [policy(observation).action for _ in range(3)] == first
    assert [leaf.shape for leaf in policy.initial_state(2)] == [(2, 4)] * 2
