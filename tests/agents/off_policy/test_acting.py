"""Acting by any module: how actions are chosen, and that schedules see the steps."""

import numpy as np
import pytest
import torch
from torch import nn

from minerva_acme import acceleration, actors, counting, distributions, networks, specs, testing
from minerva_acme.agents import actions, off_policy

DISCRETE = specs.DiscreteArray(4, name="action")
BOUNDED = specs.BoundedArray((2,), np.float32, [-1.0, 0.0], [1.0, 0.5], name="action")


class Says(nn.Module):
    """Answers with the same for each observation."""

    def __init__(self, answer, make=lambda answer: answer):
        super().__init__()
        self.answer = nn.Parameter(torch.as_tensor(answer, dtype=torch.float32))
        self.make = make

    def forward(self, observation):
        return self.make(self.answer.expand(len(observation), *self.answer.shape))


def gaussian(mean):
    return distributions.DiagonalGaussian(mean, torch.full_like(mean, -1.0))


def make_policy(module, choose, action_spec=BOUNDED, counter=None, seed=0):
    return off_policy.ModulePolicy(
        module=module,
        choose=choose,
        raw_actions=actions.executed(action_spec),
        generator=torch.Generator().manual_seed(seed),
        acceleration=acceleration.Acceleration("auto"),
        counter=counter,
    )


def choices(policy, number):
    return policy.batch(np.zeros((number, 3), np.float32)).action


def test_epsilon_is_the_share_of_random_actions_and_falls_with_the_runs_steps():
    counter = counting.Counter()
    choose = off_policy.epsilon_greedy(off_policy.linear(1.0, 0.2, 100))
    policy = make_policy(Says([0.0, 3.0, 1.0, 2.0]), choose, DISCRETE, counter)
    actor = counting.Counter(counter, "actor")

    def shares():
        return np.bincount(choices(policy, 4000), minlength=4) / 4000

    # A standard deviation is at most sqrt(1 / 4 / 4000) = 0.008.
    np.testing.assert_allclose(shares(), [0.25, 0.25, 0.25, 0.25], atol=0.04)
    actor.increment(steps=50)  # epsilon 0.6
    np.testing.assert_allclose(shares(), [0.15, 0.55, 0.15, 0.15], atol=0.04)
    actor.increment(steps=1000)  # 0.2
    np.testing.assert_allclose(shares(), [0.05, 0.85, 0.05, 0.05], atol=0.04)
    one_by_one = np.concatenate([choices(policy, 1) for _ in range(2000)])
    np.testing.assert_allclose(
        np.bincount(one_by_one, minlength=4) / 2000, [0.05, 0.85, 0.05, 0.05], atol=0.04
    )


def test_without_a_counter_schedules_see_no_steps():
    seen = []

    def choose(output, generator, env_steps):
        seen.append(env_steps)
        return output

    choices(make_policy(Says([0.0, 0.0]), choose), 1)
    assert seen == [0]


def test_each_environment_explores_by_itself():
    policy = make_policy(
        Says([0.0, 3.0, 1.0, 2.0]), off_policy.epsilon_greedy(off_policy.constant(0.5)), DISCRETE
    )
    assert len(set(choices(policy, 64).tolist())) == 4


def test_greedy_choices_are_the_best_action_and_the_mode():
    assert choices(make_policy(Says([0.0, 3.0, 3.0, 2.0]), off_policy.argmax, DISCRETE), 2).tolist() == [1, 1]
    for module in (Says([0.5, 0.25]), Says([0.5, 0.25], gaussian)):
        assert choices(make_policy(module, off_policy.mode), 1).tolist() == [[0.5, 0.25]]


def test_a_distribution_is_sampled_by_the_policys_generator():
    policy = make_policy(Says([0.0, 0.25], gaussian), off_policy.sample, seed=5)
    generator = torch.Generator().manual_seed(5)
    expected = (
        gaussian(torch.tensor([[0.0, 0.25]]))
        .sample(generator)
        .clamp(torch.tensor([-1.0, 0.0]), torch.tensor([1.0, 0.5]))
    )
    np.testing.assert_allclose(choices(policy, 1), expected.numpy())


def test_noise_has_the_standard_deviation_of_its_schedule():
    spec = specs.BoundedArray((2,), np.float32, -100.0, 100.0, name="action")
    counter = counting.Counter()
    policy = make_policy(
        Says([1.0, -2.0]), off_policy.gaussian_noise(lambda step: 2.0 if step else 0.0), spec, counter
    )
    assert choices(policy, 2).tolist() == [[1.0, -2.0]] * 2
    counting.Counter(counter, "actor").increment(steps=1)
    noise = choices(policy, 4000) - np.array([1.0, -2.0])
    np.testing.assert_allclose(noise.std(axis=0), 2.0, rtol=0.1)


def test_actions_are_clipped_to_their_bounds_and_have_the_dtype_of_their_spec():
    chosen = choices(make_policy(Says([5.0, -5.0]), off_policy.mode), 2)
    assert chosen.tolist() == [[1.0, 0.0]] * 2 and chosen.dtype == np.float32
    chosen = choices(make_policy(Says([0.0, 1.0, 0.0, 0.0]), off_policy.argmax, DISCRETE), 2)
    assert chosen.dtype == DISCRETE.dtype


def test_observations_and_actions_may_be_nests():
    class Sums(nn.Module):
        def forward(self, observation):
            total = observation["camera"].float().sum(dim=(1, 2, 3)) + observation["speed"].sum(dim=1)
            return {"gas": total[:, None], "gear": torch.zeros(len(total), dtype=torch.int64)}

    spec = {
        "gas": specs.BoundedArray((1,), np.float32, -50.0, 50.0, name="gas"),
        "gear": specs.DiscreteArray(3, name="gear"),
    }
    policy = make_policy(Sums(), lambda output, generator, env_steps: output, spec)
    observation = {"camera": np.ones((2, 2, 3), np.uint8), "speed": np.full(2, 0.5, np.float32)}
    action = policy(observation).action
    specs.check_conforms("action", action, spec)
    assert action["gas"].tolist() == [13.0]


def test_a_policy_acts_in_evaluation_mode():
    policy = make_policy(nn.Dropout(0.9), off_policy.mode, specs.Array((3,), np.float32))
    observations = np.ones((4, 3), np.float32)
    np.testing.assert_array_equal(policy.batch(observations).action, observations)


class TestContract(testing.ActorConformance):
    def make_environment(self):
        return testing.FakeEnvironment(action_spec=DISCRETE)

    def make_actor(self):
        choose = off_policy.epsilon_greedy(off_policy.constant(0.5))
        return actors.FeedForwardActor(policy=make_policy(Says([0.0, 3.0, 1.0, 2.0]), choose, DISCRETE))


# Schedules.


def test_a_linear_schedule_ends_at_its_last_value():
    schedule = off_policy.linear(1.0, 0.0, 4)
    assert [schedule(step) for step in (0, 1, 4, 9)] == [1.0, 0.75, 0.0, 0.0]
    assert off_policy.constant(0.3)(10**9) == 0.3


def test_a_linear_schedule_over_no_steps_is_refused():
    with pytest.raises(
        ValueError, match=r"`num_steps` must be >= 1, got 0. Use `constant` for a fixed value."
    ):
        off_policy.linear(1.0, 0.0, 0)


# Noise in units of the range, and random actions at first.


def test_noise_may_be_in_halves_of_the_actions_range():
    spec = specs.BoundedArray((2,), np.float32, [-100.0, 0.0], [100.0, 10.0], name="action")
    assert off_policy.half_range(spec).tolist() == [100.0, 5.0]
    choose = off_policy.gaussian_noise(off_policy.constant(0.1), off_policy.half_range(spec))
    noise = choices(make_policy(Says([1.0, 5.0]), choose, spec), 4000) - np.array([1.0, 5.0])
    np.testing.assert_allclose(noise.std(axis=0), [10.0, 0.5], rtol=0.1)


def test_actions_are_uniform_within_their_bounds_for_the_first_steps():
    counter = counting.Counter()
    choose = off_policy.random_at_first(10, BOUNDED, off_policy.mode)
    policy = make_policy(Says([0.5, 0.25]), choose, counter=counter)
    actor = counting.Counter(counter, "actor")
    actor.increment(steps=9)
    first = choices(policy, 4000)
    np.testing.assert_allclose(first.mean(axis=0), [0.0, 0.25], atol=0.05)
    np.testing.assert_allclose(first.std(axis=0), [2.0 / 12**0.5, 0.5 / 12**0.5], rtol=0.05)
    actor.increment(steps=1)
    assert choices(policy, 2).tolist() == [[0.5, 0.25]] * 2


def test_greedy_choices_take_a_prediction_of_values():
    def prediction(values):
        return networks.ScalarPrediction(values.unsqueeze(-1))

    module = Says([0.0, 3.0, 1.0, 2.0], prediction)
    assert choices(make_policy(module, off_policy.argmax, DISCRETE), 2).tolist() == [1, 1]
    never = off_policy.epsilon_greedy(off_policy.constant(0.0))
    assert choices(make_policy(module, never, DISCRETE), 2).tolist() == [1, 1]
