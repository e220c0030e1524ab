"""A time limit is no terminal: what lies behind it counts, for every agent.

Two states in turn, a reward of 1 each step, gamma 1/2. Cut after two steps, both states are worth
1 / (1 - 1/2) = 2; ended truly they are worth 1.5 and 1.
"""

import dm_env
import numpy as np
import pytest
import torch

from minerva_acme import specs
from minerva_acme.agents import mpo
from minerva_acme.agents.mpo import targets

from . import transition_scene
from .conftest import PPO, VMPO
from .mpo import scene as mpo_scene

STATES = np.eye(2, dtype=np.float32)


class TwoStates(dm_env.Environment):
    def __init__(self, last_discount, discrete=False):
        self._last_discount = last_discount
        self._discrete = discrete
        self._step_number = 0

    def reset(self):
        self._step_number = 0
        return dm_env.restart(STATES[0])

    def step(self, action):
        self._step_number += 1
        last = self._step_number == 2
        return dm_env.TimeStep(
            step_type=dm_env.StepType.LAST if last else dm_env.StepType.MID,
            reward=np.float32(1.0),
            discount=np.float32(self._last_discount if last else 1.0),
            observation=STATES[self._step_number % 2],
        )

    def observation_spec(self):
        return specs.Array((2,), np.float32, name="observation")

    def action_spec(self):
        if self._discrete:
            return specs.DiscreteArray(2, name="action")
        return specs.BoundedArray((1,), np.float32, -1.0, 1.0, name="action")

    def reward_spec(self):
        return specs.Array((), np.float32, name="reward")

    def discount_spec(self):
        return specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount")


# What the last step's discount is, and what the two states are worth.
ENDS = {"time-limit": (1.0, [2.0, 2.0]), "terminal": (0.0, [1.5, 1.0])}


@pytest.mark.parametrize(
    ("agent", "estimator", "num_environments", "end"),
    # The others' estimates at both ends are those of their `test_reference_step.py`.
    [(PPO, "gae", 1, "time-limit"), (VMPO, "dae", 2, "terminal")],
    ids=["ppo, gae", "vmpo, dae"],
)
@pytest.mark.promise("Time limits")
def test_the_value_of_on_policy_agents(agent, run, end, estimator, num_environments):
    last_discount, values = ENDS[end]
    settings = {
        # Clipped, a value moves by no more than 0.2 an update.
        "ppo": {"clip_value": False, "num_epochs": 8, "minibatch_size": 11, "anneal_learning_rate": False},
        "vmpo": {"m_steps": 8, "torso": "tanh"},
    }[agent.name]
    builder = agent.recording(
        discount=0.5,
        advantage_estimator=estimator,
        scale_rewards=False,
        normalize_observations=False,
        # The rollout ends in the middle of an episode.
        rollout_steps=10 * num_environments + num_environments,
        num_environments=num_environments,
        learning_rate=3e-2,
        max_grad_norm=100.0,
        **settings,
    )
    # One-step targets come no nearer than by a factor of gamma an update.
    num_updates = 15
    run(builder, lambda seed: TwoStates(last_discount), 11 * num_environments * num_updates, replay="memory")
    found = builder.learner.network.value(torch.from_numpy(STATES)).tolist()
    assert found == pytest.approx(values, rel=0.05)


@pytest.mark.parametrize(
    ("critic_target", "end"),
    [("retrace", "time-limit"), ("n_step", "terminal")],  # `test_reference_step.py` has the others' targets
)
def test_the_critic_of_mpo(run, critic_target, end):
    last_discount, values = ENDS[end]

    class Recording(mpo.MPOBuilder):
        def make_learner(self, parts):
            self.learner = super().make_learner(parts)
            return self.learner

    builder = Recording(
        mpo.MPOConfig(
            discount=0.5,
            critic_target=critic_target,
            policy_layer_sizes=(8,),
            critic_layer_sizes=(16,),
            sequence_length=3,
            batch_size=16,
            min_replay_size=20,
            samples_per_insert=20.0,
            num_samples=4,
            retrace_mc_actions=2,
            target_policy_update_period=10,
            target_critic_update_period=2,
            critic_learning_rate=3e-2,
        )
    )
    run(builder, lambda seed: TwoStates(last_discount), 70, replay="memory")
    policy, critic = builder.learner.networks.target.policy, mpo_scene.losses_of(builder.learner).target_q
    states = torch.from_numpy(STATES)
    # Of the actions that it takes.
    found = targets.sampled_values(states, policy(states), critic, 100, torch.Generator().manual_seed(0))
    assert found.tolist() == pytest.approx(values, rel=0.1)


# Beside what makes their critics learn fast: what is worth nothing here, entropy. `test_reference_step.py`
# has the targets of all.
OF_TRANSITIONS = {
    "sac": {"learning_rate": 3e-2, "target_rate": 0.3, "initial_temperature": 1e-6},
    "dqn": {"learning_rate": 3e-2, "max_grad_norm": 100.0, "target_update_period": 3, "epsilon_steps": 100},
}


@pytest.mark.parametrize(("name", "end"), [("sac", "time-limit"), ("dqn", "terminal")])
@pytest.mark.promise("Agents bootstrap at a time limit and not at a terminal state")
def test_the_critics_of_agents_over_transitions(run, name, end):
    last_discount, values = ENDS[end]
    agent = transition_scene.AGENTS[name]
    settings = {"batch_size": 16, "samples_per_insert": 24.0, "critic_layer_sizes": (16,)}
    builder = agent.make(discount=0.5, n_step=3, **settings, **OF_TRANSITIONS[name])
    kept = []

    class Recording(type(builder)):
        def make_learner(self, parts):
            kept.append(parts.networks)
            return super().make_learner(parts)

    recording = Recording(builder.config)
    run(recording, lambda seed: TwoStates(last_discount, agent.discrete), 45, replay="memory")
    (networks,) = kept
    states = torch.from_numpy(STATES)
    with torch.no_grad():
        if agent.discrete:
            found = networks.q_network(states).mean().amax(dim=-1)
        else:
            found = networks.critic(states, networks.policy(states).mode()).mean()
    assert found.tolist() == pytest.approx(values, rel=0.1)
