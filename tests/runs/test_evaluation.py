import numpy as np
import pytest
import torch

from minerva_acme import experiments, runs, specs, testing
from minerva_acme.agents import ppo
from minerva_acme.runs import checkpointing

BUILDER = ppo.PPOBuilder(
    ppo.PPOConfig(
        num_environments=1,
        rollout_steps=8,
        minibatch_size=4,
        num_epochs=1,
        policy_layer_sizes=(4,),
        value_layer_sizes=(4,),
    )
)
OBSERVATION = np.ones(3, np.float32)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("evaluation") / "run"
    config = experiments.ExperimentConfig(
        builder=BUILDER,
        environment_factory=lambda seed: testing.FakeEnvironment(seed=seed),
        directory=directory,
        num_env_steps=16,
        checkpoint_period=8,
        evaluation_episodes=1,
        replay="memory",
        tensorboard=False,
        checkpoint_replay=False,
    )
    experiments.run_experiment(config)
    return directory


def act(path, environment, **options):
    return runs.load_policy(path, BUILDER, environment, **options)(OBSERVATION).action


def test_a_runs_policy_is_that_of_its_newest_checkpoint(run):
    oldest, newest = sorted((run / "checkpoints").iterdir())
    actions = [act(path, testing.FakeEnvironment()) for path in (run, str(run), newest, oldest)]
    np.testing.assert_array_equal(actions[0], actions[1])
    np.testing.assert_array_equal(actions[0], actions[2])
    assert (actions[0] != actions[3]).any()


def test_it_holds_the_weights_that_were_saved(run):
    spec, generator = specs.make_environment_spec(testing.FakeEnvironment()), torch.Generator()
    policy = BUILDER.make_policy(BUILDER.make_networks(spec, generator), spec, generator, evaluation=True)
    (state,) = checkpointing.load_state(checkpointing.find(run))["policy_variables"]
    policy.set_variables([{name: tensor.numpy() for name, tensor in state.items()}])
    np.testing.assert_array_equal(act(run, spec), policy(OBSERVATION).action)


def test_exploring_it_draws_what_its_seed_says(run):
    environment = testing.FakeEnvironment()
    greedy = act(run, environment, seed=1)
    first, again, other = (act(run, environment, seed=seed, explore=True) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert (first != greedy).any()


def test_it_is_what_a_checkpoint_is_evaluated_with(run):
    result = runs.evaluate_checkpoint(run, BUILDER, testing.FakeEnvironment(episode_length=3), 2)
    assert result == runs.Evaluation(returns=(6.0, 6.0), lengths=(3, 3))


def test_an_evaluation_that_is_stopped_is_none():
    actor = testing.FakeActor(np.zeros(2, np.float32))
    assert runs.evaluate(testing.FakeEnvironment(), actor, 1, lambda: True) is None
    assert runs.evaluate(testing.FakeEnvironment(), actor, 1, lambda: False) is not None
