"""What holds for every agent that learns from transitions."""

import numpy as np
import pytest
import torch

from minerva_acme import counting, learners, replay, specs, testing
from tests.fields import of_fields

from . import transition_scene as scene


@pytest.fixture(params=scene.AGENTS)
def name(request):
    return request.param


@pytest.fixture
def agent(name):
    return scene.AGENTS[name]


def test_priorities_are_the_errors_of_the_critic_and_weights_shrink_its_loss(agent):
    """Weights of one half everywhere halve the critic's gradient, and nobody else's."""
    spec = agent.spec
    builder = agent.make(prioritized=True)
    (table,) = builder.make_replay_tables(spec)
    assert table.sampler == replay.Prioritized(0.6)
    (table,) = agent.make().make_replay_tables(spec)
    assert table.sampler == replay.Uniform()
    batch = scene.make_batch(spec)
    objectives = builder.make_objectives(spec)
    objective = objectives.get("critic") or objectives["q_network"]
    losses, priorities = [], []
    for weights in (1.0, torch.full((8,), 0.5)):
        networks = builder.make_networks(spec, torch.Generator().manual_seed(0))
        loss = objective.loss(networks, learners.Batch(batch, weights), torch.Generator().manual_seed(1))
        losses.append(loss.value.item())
        priorities.append(loss.priorities)
    assert losses[1] == pytest.approx(0.5 * losses[0]) and losses[0] > 0.0
    torch.testing.assert_close(*priorities)
    assert priorities[0].shape == (8,) and (priorities[0] >= 0).all() and (priorities[0] <= 1).all()
    # A larger reward is a larger error, up to 1.
    at_least = (batch.reward.abs() > 3.0).nonzero().flatten()
    assert (priorities[0][at_least] == 1.0).all()


# Acting.


def act(agent, env_steps, evaluation=False, number=2000, **config):
    builder, generator = agent.make(**config), torch.Generator().manual_seed(0)
    counter = counting.Counter()
    counting.Counter(counter, "actor").increment(steps=env_steps)
    networks = builder.make_networks(agent.spec, generator)
    policy = builder.make_policy(networks, agent.spec, generator, evaluation, counter)
    return policy.batch(np.ones((number, 3), np.float32)).action


@pytest.mark.parametrize("name", ["sac", "td3", "d4pg"])
def test_actions_are_random_within_their_bounds_at_first_and_the_policys_later(agent):
    first, later = (act(agent, steps, random_steps=100) for steps in (99, 100))
    low, high = np.array(scene.LOW, np.float32), np.array(scene.HIGH, np.float32)
    for actions in (first, later):
        assert actions.dtype == np.float32 and (actions >= low).all() and (actions <= high).all()
    # Uniform: mean and deviation, a twentieth of the range being ten standard errors of 2000 draws.
    np.testing.assert_allclose(first.mean(axis=0), (low + high) / 2, atol=0.05 * (high - low).max())
    np.testing.assert_allclose(first.std(axis=0), (high - low) / 12**0.5, rtol=0.05)
    greedy = act(agent, 100, evaluation=True, random_steps=100)
    assert (greedy == greedy[0]).all() and not (later == later[0]).all()


# Runs.


class Reacher(testing.FakeEnvironment):
    """Pays 1 - the squared distance of the action to a point far from the middle; time runs out."""

    def __init__(self, spec, seed):
        super().__init__(
            observation_spec=spec.observations,
            action_spec=spec.actions,
            episode_length=4,
            truncates=True,
            seed=seed,
        )

    def step(self, action):
        timestep = super().step(action)
        if timestep.first():
            return timestep
        if np.ndim(action):
            reward = 1.0 - np.square(action - np.array([0.6, -0.6])).sum()
        else:
            reward = float(action == 2)
        return timestep._replace(reward=np.float32(reward))


@pytest.mark.learning
def test_what_pays_is_found(name, agent, run):
    fast = of_fields(agent.config, FAST) | FASTER.get(name, {})
    builder = agent.make(discount=0.0, **fast)
    spec = agent.spec._replace(observations=CALM)
    num_env_steps = 180 if name in ("sac", "dqn") else 300
    result = run(builder, lambda seed: Reacher(spec, seed), num_env_steps, evaluation_episodes=5)
    # Of at most 4; a uniform action earns about 0.6 of each 1.
    assert result.after.mean > 3.7 > 3.0 > result.random.mean


@pytest.mark.reverb
@pytest.mark.parametrize("name", ["sac", "dqn"])  # a kind of action each
def test_a_run_on_reverb_makes_the_same_number_of_steps(agent, run):
    builder = agent.make(prioritized=True)
    result = run(builder, lambda seed: Reacher(agent.spec, seed), 12, replay="reverb")
    assert (result.env_steps, result.learner_steps) == (12, 5)


CALM = specs.BoundedArray((3,), np.float32, -0.1, 0.1, name="observation")
FAST = {
    "batch_size": 32,
    "samples_per_insert": 32.0,
    "critic_layer_sizes": (32,),
    "random_steps": 50,
    "learning_rate": 1e-2,
    "policy_learning_rate": 3e-3,
    "critic_learning_rate": 1e-2,
    "target_update_period": 10,
    "target_critic_update_period": 10,
    "vmin": -5.0,
    "vmax": 2.0,
}
FASTER = {
    "sac": {"initial_temperature": 0.01},
    "crr": {"beta": 0.1},
    "iql": {"target_rate": 0.3, "beta": 30.0},
    "wpo": {"kl_weight_stddev": 0.1},
    "dqn": {"epsilon_steps": 100},
}


# Observations of any kind.

OBSERVATIONS = {
    "camera": specs.BoundedArray((8, 8, 1), np.uint8, 0, 255, name="camera"),
    "gear": specs.DiscreteArray(3, name="gear"),
    "joints": (specs.Array((2,), np.float32),),
}


def test_images_and_nests_are_learned_from(agent, run):
    spec = agent.spec._replace(observations=OBSERVATIONS)
    result = run(agent.make(), lambda seed: Reacher(spec, seed), 12, replay="memory")
    assert result.learner_steps == 5
