"""Running statistics: of observations, in the network; of rewards, in the learner alone."""

import csv

import dm_env
import numpy as np
import torch

from minerva_acme import runs, testing


def make_environment(seed):
    return testing.FakeEnvironment.bounded(episode_length=5, seed=seed)


def test_observation_statistics_are_those_of_all_rollouts_each_taken_once(agent, run):
    builder = agent.recording(num_environments=2, rollout_steps=16)
    run(builder, make_environment, 16 * 4)
    normalizer = builder.learner.network.normalizer
    observations = torch.cat([rollout.observation.flatten(0, 1) for rollout in builder.rollouts])
    assert round(float(normalizer.count)) == 16 * 4
    torch.testing.assert_close(normalizer.mean, observations.mean(dim=0), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(normalizer.var, observations.var(dim=0, correction=0), rtol=1e-3, atol=1e-4)


def test_they_are_updated_after_the_epochs(agent, make_learner, continuous_spec):
    learner, network, _ = make_learner(agent.builder(), continuous_spec)
    counts = []  # whenever the policy is computed, be it to be trained
    network.policy_head.register_forward_hook(lambda *unused: counts.append(float(network.normalizer.count)))
    learner.step()
    assert {round(count) for count in counts} == {0}
    counts.clear()
    learner.step()
    assert {round(count) for count in counts} == {16}
    assert round(float(network.normalizer.count)) == 32


def test_they_are_saved_and_pulled_by_actors(agent, make_learner, continuous_spec):
    builder = agent.builder()
    learner, network, _ = make_learner(builder, continuous_spec)
    learner.run(num_steps=2)
    (variables,) = learner.get_variables(builder.policy_variables)
    np.testing.assert_array_equal(variables["normalizer.mean"], network.normalizer.mean)
    np.testing.assert_array_equal(variables["normalizer.count"], network.normalizer.count)

    for evaluation in (False, True):
        fresh = builder.make_networks(continuous_spec, torch.Generator().manual_seed(1))
        policy = builder.make_policy(
            fresh, continuous_spec, torch.Generator().manual_seed(2), evaluation=evaluation
        )
        policy.set_variables([variables])
        for key, value in policy.module.state_dict().items():
            np.testing.assert_array_equal(value, variables[key])

    restored, other, _ = make_learner(builder, continuous_spec, seed=5)
    restored.restore(testing.through_a_file(learner.save()))
    for key, value in network.state_dict().items():
        assert torch.equal(value, other.state_dict()[key])


def test_evaluation_changes_no_training_state(agent, make_learner, continuous_spec):
    builder = agent.builder()
    learner, network, _ = make_learner(builder, continuous_spec)
    learner.step()
    before = learner.save()
    policy = builder.make_policy(network, continuous_spec, torch.Generator(), evaluation=True)
    actor = builder.make_actor(policy, learner)
    actor.update(wait=True)
    state = policy.module.state_dict()
    kept = {key: value.clone() for key, value in state.items()}
    assert runs.evaluation.evaluate(testing.FakeEnvironment(), actor, 3) is not None
    testing.assert_nests_equal(learner.save(), before, "Evaluation must leave the learner as it is.")
    assert all(torch.equal(value, kept[key]) for key, value in state.items())


def test_a_run_with_evaluations_learns_what_one_without_learns(agent, run):
    states = []
    for period in (0, 24):
        builder = agent.recording(num_environments=2, rollout_steps=16)
        run(builder, make_environment, 16 * 4, evaluation_period=period)
        states.append(builder.learner.save())
    testing.assert_nests_equal(*states, "Evaluations must change nothing in training.")


class Rich(dm_env.Environment):
    """Episodes of 5 steps that pay 100 each."""

    def __init__(self):
        self._fake = testing.FakeEnvironment(episode_length=5)

    def reset(self):
        return self._fake.reset()

    def step(self, action):
        timestep = self._fake.step(action)
        return timestep if timestep.first() else timestep._replace(reward=np.float32(100.0))

    def observation_spec(self):
        return self._fake.observation_spec()

    def action_spec(self):
        return self._fake.action_spec()

    def reward_spec(self):
        return self._fake.reward_spec()

    def discount_spec(self):
        return self._fake.discount_spec()


def test_rewards_are_scaled_for_the_learner_alone(agent, run, tmp_path):
    builder = agent.recording(rollout_steps=20, discount=0.9)
    result = run(builder, lambda seed: Rich(), 40, directory=tmp_path / "rich")
    for evaluation in (result.random, result.before, result.after):
        assert evaluation.mean == 500.0
    with open(tmp_path / "rich" / "actor.csv", newline="") as file:
        assert {float(row["episode_return"]) for row in csv.DictReader(file)} == {500.0}
    for rollout in builder.rollouts:
        assert (rollout.reward == 100.0).all()
    # What a value is regressed to is of another size: 100 over the deviation of the discounted sums.
    sums = 100.0 * np.cumsum(0.9 ** np.arange(5))
    expected = 100.0 / np.std(sums)
    targets = [float(row["value/target_mean"]) for row in builder.rows]
    assert targets[0] < 5 * expected < 10.0


def test_the_scale_is_the_deviation_of_the_discounted_sums_up_to_each_step(
    agent, make_rollout, continuous_spec
):
    builder = agent.builder(scale_rewards=True, discount=0.0, advantage_estimator="dae")
    network = builder.make_networks(continuous_spec, torch.Generator().manual_seed(0))
    preparer = builder.rollout_preparer(network, continuous_spec, torch.device("cpu"))
    first, second = (make_rollout(builder, network, continuous_spec, seed) for seed in (0, 1))
    batch = preparer.prepare(first)
    deviation = first.return_so_far.std(correction=0)
    # With discount 0 the target is the reward itself.
    torch.testing.assert_close(batch.target, first.reward.flatten() / deviation, rtol=1e-3, atol=1e-3)
    batch = preparer.prepare(second)
    both = torch.cat([first.return_so_far, second.return_so_far]).std(correction=0)
    torch.testing.assert_close(batch.target, second.reward.flatten() / both, rtol=1e-3, atol=1e-3)
    # It is a part of what is saved.
    other = builder.rollout_preparer(network, continuous_spec, torch.device("cpu"))
    other.modules["return_norm"].load_state_dict(preparer.modules["return_norm"].state_dict())
    third = make_rollout(builder, network, continuous_spec, 2)
    testing.assert_nests_equal(
        other.prepare(third).target, preparer.prepare(third).target, "Restored statistics must be equal."
    )


def test_without_scaling_and_normalising_there_are_no_statistics(agent, make_rollout, continuous_spec):
    builder = agent.builder(
        scale_rewards=False, normalize_observations=False, discount=0.0, advantage_estimator="dae"
    )
    network = builder.make_networks(continuous_spec, torch.Generator().manual_seed(0))
    preparer = builder.rollout_preparer(network, continuous_spec, torch.device("cpu"))
    rollout = make_rollout(builder, network, continuous_spec)
    batch = preparer.prepare(rollout)
    preparer.update_observation_statistics(rollout)
    assert network.normalizer is None
    assert torch.equal(batch.target, rollout.reward.flatten())
    assert torch.equal(batch.observation, rollout.observation.flatten(0, 1))
    assert preparer.modules == {}
