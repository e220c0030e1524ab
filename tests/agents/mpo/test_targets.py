import math

import pytest
import torch

from minerva_acme import distributions, types
from minerva_acme.agents import mpo
from minerva_acme.agents.mpo import targets

B, T = 3, 4
GAMMA = 0.9


def value(observation, action):
    """A critic whose value hangs on the state alone, so that sampled actions do not matter."""
    return observation.square().sum(dim=-1) + 0.0 * action.sum(dim=-1)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def policy(generator):
    mean = torch.randn(B, T + 1, 2, generator=generator)
    return distributions.DiagonalGaussian(mean, torch.full_like(mean, -0.5))


@pytest.fixture
def trajectory(generator, policy):
    """On-policy sequences: whole, terminated after 2 steps, cut by a time limit after 3."""
    observation = torch.randn(B, T + 1, 3, generator=generator)
    observation[1, 3:] = observation[1, 2]
    observation[2, 4:] = observation[2, 3]
    mask = torch.ones(B, T)
    mask[1, 2:], mask[2, 3:] = 0.0, 0.0
    discount = mask.clone()
    discount[1, 1] = 0.0
    raw_action = policy.sample(generator)[:, :-1]
    first = distributions.DiagonalGaussian(policy.mean[:, :-1], policy.log_std[:, :-1])
    return types.Trajectory(
        observation=observation,
        action=raw_action.clamp(-1.0, 1.0),
        reward=torch.randn(B, T, generator=generator) * mask,
        discount=discount,
        mask=mask,
        extras=mpo.BehaviourExtras(log_prob=first.log_prob(raw_action), raw_action=raw_action),
    )


def expected_returns(trajectory):
    """The discounted return from each first step to the end of its sequence, with its bootstrap."""
    lengths = trajectory.mask.sum(dim=1).int().tolist()
    result = []
    for b, length in enumerate(lengths):
        total, weight = 0.0, 1.0
        for t in range(length):
            total += weight * trajectory.reward[b, t].item()
            weight *= GAMMA * trajectory.discount[b, t].item()
        result.append(total + weight * trajectory.observation[b, length].square().sum().item())
    return torch.tensor(result)


def test_n_step_is_the_return_to_the_end_of_the_sequence(trajectory, policy, generator):
    result = targets.n_step(num_actions=2)(trajectory, trajectory.discount * GAMMA, policy, value, generator)
    torch.testing.assert_close(result[:, 0], expected_returns(trajectory))


def test_n_step_bootstraps_where_its_episode_was_cut_and_not_in_the_next_one(generator):
    """What `ContinuingSequenceAdder` writes: two steps, the step between two episodes, one of the next."""
    observation = torch.tensor([[1.0, 2.0, 3.0, 5.0, 10.0]])[..., None]
    ones = torch.ones(1, 4)
    mask = torch.tensor([[1.0, 1.0, 0.0, 1.0]])
    cut = types.Trajectory(
        observation=observation,
        action=torch.zeros(1, 4, 2),
        reward=ones,
        discount=ones,
        mask=mask,
        extras=mpo.BehaviourExtras(log_prob=torch.zeros(1, 4), raw_action=torch.zeros(1, 4, 2)),
    )
    policy = distributions.DiagonalGaussian(torch.zeros(1, 5, 2), torch.zeros(1, 5, 2))
    result = targets.n_step(num_actions=2)(cut, ones * GAMMA, policy, value, generator)
    # The first two bootstrap from 3^2 = 9: 1 + 0.9 (1 + 0.9 * 9) and 1 + 0.9 * 9; the last from 10^2.
    torch.testing.assert_close(result[mask > 0], torch.tensor([9.19, 9.1, 91.0]))
    terminal = ones * GAMMA * torch.tensor([[1.0, 0.0, 1.0, 1.0]])
    result = targets.n_step(num_actions=2)(cut, terminal, policy, value, generator)
    torch.testing.assert_close(result[mask > 0], torch.tensor([1.9, 1.0, 91.0]))


def test_improbable_actions_cut_the_trace(trajectory, policy, generator):
    # Behaviour drew the actions after the first with far higher density than the target policy would.
    log_prob = trajectory.extras.log_prob.clone()
    log_prob[:, 1:] += 50.0
    off_policy = trajectory._replace(extras=trajectory.extras._replace(log_prob=log_prob))
    discount_t = trajectory.discount * GAMMA
    one_step = targets.one_step(num_actions=2)(off_policy, discount_t, policy, value, generator)
    retrace = targets.retrace(lambda_=1.0, num_actions=2)(off_policy, discount_t, policy, value, generator)
    torch.testing.assert_close(retrace[:, 0], one_step[:, 0])


def test_state_values_are_means_over_sampled_actions(generator):
    policy = distributions.DiagonalGaussian(torch.tensor([[1.0], [-2.0]]), torch.full((2, 1), math.log(0.1)))

    def critic(observation, action):
        return observation.squeeze(-1) + 3.0 * action.squeeze(-1)

    values = targets.sampled_values(torch.tensor([[10.0], [20.0]]), policy, critic, 4_000, generator)
    torch.testing.assert_close(values, torch.tensor([13.0, 14.0]), atol=0.03, rtol=0.0)
