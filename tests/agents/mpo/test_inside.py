"""What keeps MPO's policy where exploration can find something: bounded means, and temperatures that wait."""

import dataclasses
import itertools
import logging

import pytest
import torch

from minerva_acme import networks
from minerva_acme.agents import mpo
from minerva_acme.agents.mpo import health, objectives

from .scene import SMALL, Sample, make_learner, make_trajectory, repeat

NUM_STATES, BEST = 16, torch.tensor([0.4, -0.3])


class KnownCritic(torch.nn.Module):
    """Q(s, a) = -|a - best - 0.2 s|^2, which nothing trains."""

    def __init__(self):
        super().__init__()
        self.unused = torch.nn.Parameter(torch.zeros(()))

    def forward(self, features, action):
        distance = action - BEST - 0.2 * features[..., :2]
        return networks.ScalarPrediction(-distance.square().sum(dim=-1, keepdim=True) + 0.0 * self.unused)

    def loss(self, prediction, target, mask):
        return 0.0 * prediction.value.sum()


def improved_from(spec, num_steps, **settings):
    """The mean's distance from the best action, before and after steps from a mean driven outwards."""
    config = dataclasses.replace(
        SMALL,
        init_stddev=0.3,
        policy_learning_rate=5e-2,
        init_log_alpha_mean=0.0,
        epsilon_mean=0.1,
        target_policy_update_period=3,
        num_samples=16,
        **settings,
    )
    batch = make_trajectory(batch_size=NUM_STATES, length=1)
    nets = mpo.make_networks(spec, config, torch.Generator().manual_seed(0))
    torch.nn.init.constant_(nets.policy.mean_head.bias, 3.0)
    learner, rows = make_learner(spec, repeat(batch), config, networks=nets._replace(critic=KnownCritic()))
    best = BEST + 0.2 * batch.observation[:, 0, :2]

    def distance():
        with torch.no_grad():
            return (nets.policy(batch.observation[:, 0]).mean - best).abs().mean().item()

    before = distance()
    learner.run(num_steps=num_steps)
    return before, distance(), rows


def test_a_mean_driven_to_its_bounds_comes_back(spec):
    before, after, rows = improved_from(spec, 90)  # tanh(3) = 0.995
    assert before > 0.8
    assert after < 0.4 * before
    assert all(row["policy/clipped_means"] == 0.0 for row in rows)


def test_a_mean_without_bounds_stays_where_all_actions_are_clipped_to_the_same_one(spec):
    before, after, rows = improved_from(spec, 45, bounded_mean=False)
    assert after > 0.8 * before
    assert rows[-1]["policy/clipped_means"] == 1.0


def zeros_and_then(reward):
    """Batches without any reward, then one with a reward in one of its steps, then without again."""
    for seed in range(12):
        batch = make_trajectory(seed=seed)
        batch.reward.zero_()
        if seed == 6:
            batch.reward[1, 2] = reward
        yield Sample(batch)


@pytest.mark.parametrize("reward", [-1e-3, 1.0, 1e4])
def test_no_reward_seen_means_no_improvement(spec, reward):
    config = dataclasses.replace(SMALL, policy_learning_rate=1e-3, temperature_floor=1e-9)
    learner, rows = make_learner(spec, zeros_and_then(reward), config)
    learner.run(num_steps=12)
    before, after = rows[:6], rows[6:]
    assert max(float(row["kl/q_rel"]) for row in before) < 1e-6
    assert all(0.5 < float(row["kl/q_rel"]) < 1.5 for row in after)


def test_a_floor_of_zero_follows_the_values_from_the_first_step(spec):
    config = dataclasses.replace(SMALL, temperature_floor=0.0)
    learner, rows = make_learner(spec, zeros_and_then(1.0), config)
    learner.run(num_steps=5)
    assert all(float(row["kl/q_rel"]) == pytest.approx(1.0, rel=0.01) for row in rows)


def test_the_floor_is_a_share_of_the_largest_reward_that_happened():
    floor = objectives.TemperatureFloor(0.05, num_objectives=2)
    mask = torch.tensor([[1.0, 0.0]])
    assert floor().min() >= 1e15
    floor.update(torch.tensor([[[2.0, 0.0], [9.0, 9.0]]]), mask, None)
    torch.testing.assert_close(floor()[0], torch.tensor(0.1))
    assert floor()[1] >= 1e15
    floor.update(torch.tensor([[[-4.0, torch.inf], [9.0, 9.0]]]), mask, None)
    torch.testing.assert_close(floor()[0], torch.tensor(0.2))
    assert floor()[1] >= 1e15


@pytest.mark.parametrize("unit", [1e-3, 1e5])
@pytest.mark.promise("MPO's mean stays in bounds")
def test_the_bound_of_the_e_step_holds_in_any_unit_of_the_reward_and_after_a_jump(spec, unit):
    def batches():
        for seed in range(16):
            batch = make_trajectory(seed=seed % 7)
            factor = unit * (100.0 if seed >= 8 else 1.0)
            yield Sample(batch._replace(reward=factor * batch.reward))

    config = dataclasses.replace(SMALL, critic_learning_rate=3e-3, target_critic_update_period=10)
    learner, rows = make_learner(spec, batches(), config)
    learner.run(num_steps=16)
    # Until the critic has values of the reward's size, its floor may hold the temperature higher.
    assert max(float(row["kl/q_rel"]) for row in rows) < 1.5
    free = dataclasses.replace(config, temperature_floor=0.0)
    learner, rows = make_learner(spec, batches(), free)
    learner.run(num_steps=16)
    assert all(0.5 < float(row["kl/q_rel"]) < 1.5 for row in rows)


def test_a_run_says_once_that_its_means_stay_beyond_the_bounds(caplog):
    watch = health.Health()
    with caplog.at_level(logging.WARNING):
        for step, share in ((0, 0.9), (1000, 0.5), (1500, 0.9), (2000, 0.2), (3000, 0.6)):
            watch.after(None, {"policy/clipped_means": torch.tensor(share)}, step)
        assert not caplog.records
        for step in (4000, 5000, 6000):
            watch.after(None, {"policy/clipped_means": torch.tensor(0.6)}, step)
    (record,) = caplog.records
    assert "learner step 4000: 60 % of the policy's means lie beyond the bounds" in record.getMessage()
    assert "Set `bounded_mean`" in record.getMessage()


def test_between_improvements_the_critic_alone_learns_and_their_numbers_stay(spec):
    config = dataclasses.replace(SMALL, policy_period=3)
    batches = [make_trajectory(seed=seed) for seed in range(7)]
    learner, rows = make_learner(spec, map(Sample, batches), config)
    states = []
    for _ in batches:
        learner.step()
        states.append(learner.save())
    policies = [state["modules"]["policy"]["mean_head.weight"] for state in states]
    critics = [state["modules"]["critic"]["head.weight"] for state in states]
    moved = [not torch.equal(a, b) for a, b in itertools.pairwise(policies)]
    assert moved == [False, True, False, False, True, False]  # in steps 3 and 6
    assert all(not torch.equal(a, b) for a, b in itertools.pairwise(critics))
    assert "kl/mean_rel" not in rows[1]
    assert rows[3]["kl/q_rel"] == rows[2]["kl/q_rel"] != rows[5]["kl/q_rel"]

    resumed, again = make_learner(spec, map(Sample, batches[4:]), config, seed=5)
    resumed.restore(states[3])
    resumed.run(num_steps=3)
    for found, expected in zip(again, rows[4:], strict=True):
        names = expected.keys() - {"walltime", "steps"}
        assert found.keys() == expected.keys()
        assert all(float(found[name]) == float(expected[name]) for name in names)


def test_a_batch_is_as_usual_if_it_was_all_padding_but_for_one_step(spec):
    """The floor and the solved temperature see only what happened."""
    mask = torch.zeros(4, 5)
    mask[2, 0] = 1.0
    reward = torch.full((4, 5), 7.0)
    reward[2, 0] = 0.5
    batch = make_trajectory(mask=mask, reward=reward)
    learner, _ = make_learner(spec, repeat(batch), dataclasses.replace(SMALL, policy_loss_steps="all"))
    learner.step()
    assert learner.save()["modules"]["temperature_floor"]["largest"].item() == 0.5
