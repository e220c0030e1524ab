"""PPO and V-MPO with a memory: what actors remember is what learners go back through."""

import logging

import dm_env
import numpy as np
import pytest
import torch

from minerva_acme import (
    acceleration,
    actors,
    environments,
    learners,
    networks,
    runs,
    specs,
    testing,
    types,
)
from minerva_acme.agents import acting, ppo
from minerva_acme.agents.ppo import learner as ppo_learner

from .. import transition_scene
from ..conftest import BOTH, PPO, VMPO

MEMORY = {"memory": "lstm", "memory_size": 6}


def with_memory(agent, **overrides):
    """Settings with a memory, of 2 environments of 8 steps each if nothing else is said."""
    settings = {**MEMORY, "num_environments": 2, "rollout_steps": 16, **overrides}
    if agent.name == "ppo":
        settings.setdefault("minibatch_size", settings["rollout_steps"] // settings["num_environments"])
    return settings


def make_environment(environment_id):
    if environment_id == "continuous":  # episodes of 5 steps
        return lambda seed: testing.FakeEnvironment.bounded(episode_length=5, seed=seed)
    return lambda seed: environments.make_training_environment(environment_id, seed=seed)


class Remembered:
    """Goes through each rollout as the learner will, with its network before it moves."""

    def __init__(self, config):
        super().__init__(config)
        self.differences: list[float] = []
        self.states: list[torch.Tensor] = []

    @torch.no_grad()
    def on_rollout(self, rollout):
        network, extras = self.learner.network, rollout.extras
        past = networks.Past(tuple(part[0] for part in extras.state), rollout.first)
        policy = network.policy(rollout.observation, past)
        found = policy.log_prob(extras.raw_action)
        self.differences.append(float((found - extras.log_prob).abs().max()))
        state = past.state
        for t, start in enumerate(rollout.first):
            begins = start > 0
            for before, recorded in zip(state, extras.state, strict=True):
                torch.testing.assert_close(recorded[t], torch.where(begins[:, None], 0.0, before))
            _, state = network.remember(rollout.observation[t], state, start)
        self.states.append(past.state[0])


@pytest.mark.parametrize(
    ("agent", "kind", "environment_id", "num_environments"),
    [(PPO, "lstm", "CartPole-v1", 1), (VMPO, "gru", "continuous", 3)],
    indirect=["agent"],
)
def test_the_learner_goes_through_what_the_actor_remembered(
    agent, run, environment_id, num_environments, kind
):
    settings = {"memory": kind, "num_environments": num_environments, "rollout_steps": 12 * num_environments}
    builder = agent.recording(Remembered, **with_memory(agent, **settings))
    run(builder, make_environment(environment_id), 12 * num_environments * 3)
    assert len(builder.differences) == 3
    assert max(builder.differences) < 2e-5
    # Rollouts begin within episodes, too.
    assert any((state != 0).any() for state in builder.states)


def test_the_first_ratio_of_ppo_is_1_with_a_memory(ppo_agent, run):
    builder = ppo_agent.recording(**with_memory(ppo_agent, num_epochs=3, learning_rate=1e-2))
    run(builder, make_environment("CartPole-v1"), 16 * 3)
    assert all(float(row["policy/approx_kl_first"]) < 1e-10 for row in builder.rows)
    assert all(float(row["policy/approx_kl"]) > 1e-7 for row in builder.rows)


def make_parts(agent, spec, seed=0, **overrides):
    builder = agent.builder(**with_memory(agent, **overrides))
    return builder, builder.make_networks(spec, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_a_subclass_of_the_network_acts_as_it_learns(agent, continuous_spec, memory):
    class Moved(networks.ActorCritic):
        def policy(self, observation, past=()):
            policy = super().policy(observation, past)
            return policy._replace(mean=policy.mean + 7.0)

    builder, network = make_parts(agent, continuous_spec, memory=memory, init_stddev=0.01)
    network.__class__ = Moved
    policy = builder.make_policy(network, continuous_spec, torch.Generator().manual_seed(0))
    output, _ = policy.step(np.ones((2, 3), np.float32), policy.initial_state(2))
    np.testing.assert_allclose(output.extras.raw_action, 7.0, atol=0.2)


def test_hooks_of_the_memory_which_acting_would_not_call_are_refused(agent, continuous_spec):
    builder, network = make_parts(agent, continuous_spec, memory="lstm")
    network.memory.rnn.register_forward_hook(lambda *_: None)
    builder.make_policy(network, continuous_spec, torch.Generator().manual_seed(0))
    network.memory.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="`memory` must not have hooks of its own, .* got a LSTM with hooks"):
        builder.make_policy(network, continuous_spec, torch.Generator().manual_seed(0))


def make_rollout(builder, network, spec, seed=0):
    """Any rollout of 8 steps in 2 environments, with episodes that end at 2 and 5 and at 6."""
    generator = torch.Generator().manual_seed(seed)
    first, last = torch.zeros(8, 2), torch.zeros(8, 2)
    last[2, 0] = last[5, 0] = last[6, 1] = 1.0
    first[1:] = last[:-1]
    last[-1] = 1.0
    observation = torch.randn(8, 2, 3, generator=generator)
    policy = builder.make_policy(network, spec, generator)
    state = tuple(torch.randn(2, 6, generator=generator).numpy() for _ in range(2))
    outputs = []
    for row in observation:
        output, state = policy.step(row.numpy(), state)
        outputs.append(output)

    def stack(*arrays):
        return torch.from_numpy(np.stack(arrays))

    extras = [output.extras for output in outputs]
    return types.Rollout(
        observation=observation,
        action=stack(*(output.action for output in outputs)),
        reward=torch.randn(8, 2, generator=generator),
        discount=torch.ones(8, 2),
        next_observation=torch.randn(8, 2, 3, generator=generator),
        first=first,
        last=last,
        return_so_far=torch.ones(8, 2),
        extras=acting.BehaviourExtras(
            log_prob=stack(*(each.log_prob for each in extras)),
            raw_action=stack(*(each.raw_action for each in extras)),
            parameters=type(extras[0].parameters)(
                *(stack(*parts) for parts in zip(*(each.parameters for each in extras), strict=True))
            )
            if extras[0].parameters
            else (),
            state=tuple(stack(*parts) for parts in zip(*(each.state for each in extras), strict=True)),
        ),
    )


@pytest.mark.parametrize("is_read", [True, False], ids=["CPU", "as on a GPU"])
@torch.no_grad()
def test_values_at_ends_are_those_of_what_the_episode_led_to(agent, continuous_spec, is_read, monkeypatch):
    monkeypatch.setattr(learners, "is_read_at_once", lambda tensor: is_read)
    builder, network = make_parts(
        agent, continuous_spec, advantage_estimator="dae", scale_rewards=False, normalize_observations=False
    )
    rollout = make_rollout(builder, network, continuous_spec)
    batch = builder.rollout_preparer(network, continuous_spec, torch.device("cpu")).prepare(rollout)
    value_of = network.without_memory().value
    advantages = torch.zeros(8, 2)
    for e in range(2):
        state = tuple(part[0, e][None] for part in rollout.extras.state)
        for t in range(8):
            if rollout.first[t, e]:
                state = tuple(torch.zeros_like(part) for part in state)
            features, state = network.remember(rollout.observation[t, e][None], state)
            goes_on = not rollout.last[t, e]
            following = rollout.observation[t + 1, e] if goes_on else rollout.next_observation[t, e]
            next_features, _ = network.remember(following[None], state)
            bootstrap = builder.config.discount * value_of(next_features)
            advantages[t, e] = rollout.reward[t, e] + bootstrap - value_of(features)
    torch.testing.assert_close(batch.advantage, advantages.flatten(), rtol=1e-4, atol=1e-5)


@BOTH
@torch.no_grad()
def test_the_correction_compares_what_the_memory_makes_of_the_steps_now(agent, spec):
    """Behind the burn-in, the update begins with the policy that the ratios are of."""
    builder, network = make_parts(agent, spec, asynchronous=True, burn_in=3)
    rollout = make_rollout(builder, make_parts(agent, spec, seed=1)[1], spec)
    for parameter in network.parameters():
        parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
    batch = builder.rollout_preparer(network, spec, torch.device("cpu")).prepare(rollout)
    policy = network.from_normalized(batch.observation, batch.past).policy
    torch.testing.assert_close(batch.log_prob, policy.log_prob(batch.raw_action))
    ratio = torch.exp(batch.log_prob - rollout.extras.log_prob[3:].flatten())
    torch.testing.assert_close(batch.weight, ratio.clamp(max=1.0))
    assert 0.2 < (ratio > 1.01).float().mean() < 0.8
    if builder.records_parameters:
        for found, expected in zip(batch.parameters, policy, strict=True):  # KLs are relative to it
            torch.testing.assert_close(found, expected)


def learn(agent, spec, change, **overrides):
    """A step on a rollout that `change` has changed; the state of the learner's modules."""
    builder, network = make_parts(agent, spec, scale_rewards=False, gae_lambda=0.5, **overrides)
    rollout = change(make_rollout(builder, network, spec))
    learner, *_ = transition_scene.make_learner(builder, spec, [rollout], network, seed=1)
    learner.step()
    return learner.save()["modules"]


@BOTH
def test_steps_of_the_burn_in_are_in_no_loss(agent, spec):
    def reward(t):
        def change(rollout):
            changed = rollout.reward.clone()
            changed[t] += 3.0
            return rollout._replace(reward=changed)

        return change

    def learned(change, burn_in):
        return learn(agent, spec, change, burn_in=burn_in, normalize_advantages=True)

    plain = learned(lambda rollout: rollout, 3)
    testing.assert_nests_equal(learned(reward(2), 3), plain)
    with pytest.raises(AssertionError):
        testing.assert_nests_equal(learned(reward(3), 3), plain)
    with pytest.raises(AssertionError):
        testing.assert_nests_equal(learned(reward(2), 0), learned(lambda rollout: rollout, 0))


def test_the_burn_in_is_seen_by_the_memory(agent, spec):
    def observation(rollout):
        changed = rollout.observation.clone()
        changed[1] += 1.0
        return rollout._replace(observation=changed)

    def learned(change):
        return learn(agent, spec, change, burn_in=2, normalize_observations=False)

    with pytest.raises(AssertionError):
        testing.assert_nests_equal(learned(observation), learned(lambda rollout: rollout))


def test_minibatches_of_ppo_are_all_steps_of_whole_environments():
    T, E, burn_in = 5, 4, 2
    steps = torch.arange(T * E).view(T, E)  # time first
    late = steps[burn_in:].flatten()
    state = torch.arange(100.0, 100.0 + E)[:, None]
    samples = ppo_learner.Samples(
        observation={"place": steps.flatten()},
        raw_action=late,
        raw_log_prob=late,
        value=late,
        advantage=late,
        weight=late,
        target=late,
        past=networks.Past((state,), steps * 0.5, burn_in),
    )
    generator = torch.Generator().manual_seed(0)
    orders = set()
    for _ in range(5):
        minibatches = [*ppo_learner._whole_environments(samples, 2, generator)]
        chosen = [[int(number) - 100 for number in each.past.state[0][:, 0]] for each in minibatches]
        orders.add(tuple(map(tuple, chosen)))
        assert sorted(number for part in chosen for number in part) == [0, 1, 2, 3]
        for minibatch, columns in zip(minibatches, chosen, strict=True):
            assert torch.equal(minibatch.observation["place"], steps[:, columns].flatten())
            assert torch.equal(minibatch.past.start, steps[:, columns] * 0.5)
            assert minibatch.past.burn_in == burn_in
            for column in minibatch[1:6]:
                assert torch.equal(column, steps[burn_in:, columns].flatten())
    assert len(orders) > 1


class Recall(specs.SpecMethods, dm_env.Environment):
    """Shows a side in the first of four steps alone; each step to that side gives 1."""

    def __init__(self, seed):
        self._random = np.random.default_rng(seed)
        self._specs = specs.EnvironmentSpec(
            specs.Array((1,), np.float32, name="cue"),
            specs.DiscreteArray(2, name="side"),
            specs.Array((), np.float32, name="reward"),
            specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
        )

    def reset(self):
        self._side, self._num_steps = int(self._random.integers(2)), 0
        return dm_env.restart(np.array([2.0 * self._side - 1.0], np.float32))

    def step(self, action):
        self._num_steps += 1
        reward, blank = np.float32(action == self._side), np.zeros(1, np.float32)
        if self._num_steps == 4:
            return dm_env.termination(reward, blank)._replace(discount=np.float32(0))
        return dm_env.transition(reward, blank, discount=np.float32(1))


@pytest.mark.parametrize(
    ("agent", "has_memory"),
    [
        (PPO, True),
        pytest.param(PPO, False, marks=pytest.mark.learning),
        pytest.param(VMPO, True, marks=pytest.mark.learning),
        pytest.param(VMPO, False, marks=pytest.mark.learning),
    ],
    ids=["ppo", "ppo, without", "vmpo", "vmpo, without"],
)
@pytest.mark.promise("Recurrent networks")
def test_what_must_be_remembered_is_learned_with_a_memory_alone(agent, run, has_memory):
    memory = {"ppo": "lstm", "vmpo": "gru"}[agent.name] if has_memory else "none"
    settings = {"num_epochs": 4, "target_kl": None} if agent.name == "ppo" else {"m_steps": 8}
    builder = agent.builder(
        memory=memory,
        memory_size=16,
        num_environments=8,
        rollout_steps=128,
        learning_rate=1e-2,
        discount=0.9,
        **settings,
        **({"minibatch_size": 32} if agent.name == "ppo" else {}),
    )
    result = run(builder, Recall, 128 * 11, evaluation_episodes=20)
    # At most 4; whoever forgets has the first step right and half of the others.
    if has_memory:
        assert result.after.mean == 4.0
    else:
        assert result.after.mean < 3.5


# Acting.


def test_several_environments_are_played_like_each_alone(agent):
    environment = make_environment("CartPole-v1")
    spec = specs.make_environment_spec(environment(0))
    builder, network = make_parts(agent, spec)
    with torch.no_grad():
        for parameter in network.policy_head.parameters():
            parameter *= 100.0  # acts by what it sees

    def actor(make):
        return make(builder.make_policy(network, spec, torch.Generator(), evaluation=True))

    alone = [runs.evaluate(environment(seed), actor(builder.make_actor), 3) for seed in range(3)]
    factories = [lambda seed=seed: environment(seed) for seed in range(3)]
    vector = environments.make_vector(factories, processes=False)
    together = runs.evaluate(vector, actor(builder.make_vector_actor), 9)
    assert sorted(together.returns) == sorted(sum((each.returns for each in alone), ()))
    assert isinstance(actor(builder.make_actor), actors.RecurrentActor)


def test_without_a_memory_actors_and_extras_are_the_plain_ones(agent, continuous_spec):
    builder = agent.builder()
    network = builder.make_networks(continuous_spec, torch.Generator())
    policy = builder.make_policy(network, continuous_spec, torch.Generator())
    assert type(builder.make_actor(policy)) is actors.FeedForwardActor
    assert type(builder.make_vector_actor(policy)) is actors.FeedForwardVectorActor
    assert policy.initial_state(3) == ()
    assert policy(np.ones(3, np.float32)).extras.state == ()


def test_a_policy_with_memory_says_that_observations_alone_are_too_little(agent, continuous_spec):
    builder, network = make_parts(agent, continuous_spec)
    policy = builder.make_policy(network, continuous_spec, torch.Generator())
    with pytest.raises(ValueError, match="ModulePolicy must define `batch`, or be called through `step`"):
        policy.batch(np.ones((2, 3), np.float32))


def test_weights_that_are_set_reach_the_memory_and_what_is_behind_it(agent, continuous_spec):
    builder, network = make_parts(agent, continuous_spec)
    _, other = make_parts(agent, continuous_spec, seed=1)
    policy, expected = (
        builder.make_policy(each, continuous_spec, torch.Generator(), evaluation=True)
        for each in (network, other)
    )
    policy.set_variables([{name: value.numpy() for name, value in other.state_dict().items()}])
    for _ in range(3):
        observation = np.random.default_rng(0).normal(size=3).astype(np.float32)
        testing.assert_nests_equal(policy(observation).action, expected(observation).action)


# Settings.


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"memory": "rnn"}, r"`memory` must be one of \('none', 'lstm', 'gru'\), got 'rnn'."),
        ({"memory_size": 0}, "`memory_size` must be >= 1, got 0."),
        ({"memory_size": 10**9}, "`memory_size` must be sizes that can be trained with this machine's"),
        ({"burn_in": -1}, "`burn_in` must be >= 0, got -1."),
        (
            {"burn_in": 8},
            "`burn_in` must be < the 8 steps that each environment makes of a rollout .* got 8.",
        ),
        ({"memory": "none", "burn_in": 1}, "`burn_in` must be 0 without `memory`, got 1."),
    ],
)
def test_settings_of_a_memory_that_make_no_sense_are_refused(agent, overrides, message):
    with pytest.raises(ValueError, match=message):
        agent.config(**with_memory(agent, **overrides))


def test_minibatches_that_would_cut_an_environment_are_refused(ppo_agent):
    for size in (4, 12):
        message = f"`minibatch_size` must be a multiple of the 8 steps that each environment .* got {size}."
        with pytest.raises(ValueError, match=message):
            ppo_agent.config(**with_memory(ppo_agent, minibatch_size=size))
    assert ppo_agent.config(**with_memory(ppo_agent, minibatch_size=16)).minibatch_size == 16
    assert ppo.PRESETS["memory"].memory == "lstm"


def test_the_log_says_that_arrays_do_not_know_memories(ppo_agent, run, caplog, monkeypatch):
    monkeypatch.setattr(acceleration.notes, "_said", set())
    with caplog.at_level(logging.INFO, "minerva_acme.acceleration"):
        run(ppo_agent.recording(**with_memory(ppo_agent)), make_environment("CartPole-v1"), 16)
    assert "PPO's updates: autograd: memory (LSTM) is not supported" in caplog.messages
