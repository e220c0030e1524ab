"""What is DQN's own: discrete actions, how it explores, and which switches go together."""

import numpy as np
import pytest
import torch

from minerva_acme import counting
from minerva_acme.agents import dqn

from .. import transition_scene as scene

AGENT = scene.AGENTS["dqn"]


def test_epsilon_falls_over_environment_steps_and_evaluation_is_greedy():
    builder = AGENT.make(initial_epsilon=0.9, final_epsilon=0.3, epsilon_steps=100)
    generator, counter = torch.Generator().manual_seed(0), counting.Counter()
    networks = builder.make_networks(AGENT.spec, generator)
    observations = np.ones((4000, 3), np.float32)

    def share_of_others(evaluation=False):
        policy = builder.make_policy(networks, AGENT.spec, generator, evaluation, counter)
        actions = policy.batch(observations).action
        return 1.0 - np.bincount(actions, minlength=3).max() / 4000

    actor = counting.Counter(counter, "actor")
    # A random action is the greedy one in a third of cases; a standard deviation is at most 0.008.
    assert share_of_others() == pytest.approx(0.6, abs=0.04)
    actor.increment(steps=50)
    assert share_of_others() == pytest.approx(0.4, abs=0.04)
    actor.increment(steps=500)
    assert share_of_others() == pytest.approx(0.2, abs=0.04)
    assert share_of_others(evaluation=True) == 0.0


@pytest.mark.parametrize("others", [{"critic_head": "c51"}, {"num_critics": 2}])
def test_errors_are_clipped_only_where_there_is_one(others):
    with pytest.raises(ValueError, match="`max_td_error` must be None unless there is one critic"):
        dqn.DQNConfig(max_td_error=1.0, **others)


@pytest.mark.parametrize(
    ("value", "expected"), [(-1.0, "> 0 or None, got -1"), (0.0, "> 0 or None"), ("a", "> 0 or None")]
)
def test_a_clip_that_cannot_be_is_refused(value, expected):
    with pytest.raises(ValueError, match=f"`max_td_error` must be {expected}"):
        dqn.DQNConfig(max_td_error=value)
    assert dqn.DQNConfig(max_td_error=None).max_td_error is None


def test_a_mixture_cannot_be_dueling():
    with pytest.raises(ValueError, match="`dueling` must be False with `critic_head` mixture"):
        dqn.DQNConfig(critic_head="mixture")
    assert dqn.DQNConfig(critic_head="mixture", dueling=False).num_components == 5


@pytest.mark.parametrize(("preset", "epsilon"), [("default", 1e-8), ("rainbow", 1.5e-4)])
def test_adams_epsilon_is_the_configs(preset, epsilon):
    builder = dqn.DQNBuilder(dqn.PRESETS[preset])
    weights = torch.nn.Parameter(torch.ones(3))
    optimizer = builder.make_optimizer("q_network", [{"params": [weights], "lr": 0.1}])
    weights.grad = torch.tensor([1e-4, -1e-3, 1.0])
    optimizer.step()
    # After one step, the moments of Adam without their bias are the gradient and its square.
    expected = 1.0 - 0.1 * weights.grad / (weights.grad.abs() + epsilon)
    torch.testing.assert_close(weights.detach(), expected, rtol=1e-5, atol=1e-6)
