"""The programs of the end-to-end comparison learn with equal settings."""

import contextlib

import pytest

pytest.importorskip("gymnasium")

import gymnasium as gym
import torch
from torch import nn

from minerva_acme import learners

from . import on_policy_setup, single_file_ppo


@pytest.mark.parametrize("num_environments", [1, 2])
def test_our_iteration_is_a_rollout_and_a_learner_step(num_environments, monkeypatch):
    monkeypatch.setattr(on_policy_setup, "ROLLOUT_STEPS", 128)
    rows, finish = [], learners.ModuleLearner.finish_step

    def finish_and_keep(learner, metrics):
        rows.append(metrics)
        finish(learner, metrics)

    monkeypatch.setattr(learners.ModuleLearner, "finish_step", finish_and_keep)
    with contextlib.ExitStack() as stack:
        iterate = on_policy_setup.make_ours("Pendulum-v1", num_environments, "memory", stack)
        iterate()
        iterate()
    assert [(row["epochs"], row["skipped_batches"]) for row in rows] == [(10, 0), (10, 0)]
    # Of the second rollout, by the policy that the first one has changed.
    assert float(rows[1]["policy/approx_kl_first"]) < 1e-9 < float(rows[1]["policy/approx_kl"])


class OneStep(gym.Env):
    """An environment with episodes of one step; the closer the action is to 0.5, the higher the reward."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,))
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), -abs(float(action[0]) - 0.5), True, False, {}


def test_the_single_file_learns(monkeypatch):
    agents = []
    monkeypatch.setattr(gym, "make", lambda environment_id: OneStep())
    monkeypatch.setattr(single_file_ppo, "Agent", lambda *args: agents.append(_Agent(*args)) or agents[-1])
    iterate = single_file_ppo.make("OneStep", 2, 256, 64, 10, (16, 16))
    (agent,) = agents

    def mean_action():
        with torch.no_grad():
            return agent.mean(torch.zeros(2)).item()

    before = mean_action()
    for _ in range(6):
        iterate()
    assert before == pytest.approx(0.0, abs=0.05) and mean_action() > before + 0.1


_Agent: type[nn.Module] = single_file_ppo.Agent
