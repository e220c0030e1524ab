import contextlib
import json
import pathlib
import struct

import dm_env
import numpy as np
import pytest
import torch

import minerva_acme
from minerva_acme import environments, experiments, testing
from minerva_acme.agents import mpo, ppo, vmpo

SMALL = {"num_environments": 2, "rollout_steps": 16, "policy_layer_sizes": (8,), "value_layer_sizes": (8,)}
PPO = {**SMALL, "minibatch_size": 4, "num_epochs": 1}
RUNS = {
    "MPO": (
        mpo.MPOBuilder(
            mpo.MPOConfig(
                batch_size=8,
                min_replay_size=8,
                samples_per_insert=8.0,
                policy_layer_sizes=(8,),
                critic_layer_sizes=(8,),
            )
        ),
        "Pendulum-v1",
    ),
    "V-MPO": (vmpo.VMPOBuilder(vmpo.VMPOConfig(**SMALL)), "Pendulum-v1"),
    "V-MPO, discrete": (vmpo.VMPOBuilder(vmpo.VMPOConfig(**SMALL)), "CartPole-v1"),
    "PPO": (ppo.PPOBuilder(ppo.PPOConfig(**PPO)), "Pendulum-v1"),
    "PPO, discrete": (ppo.PPOBuilder(ppo.PPOConfig(**PPO)), "CartPole-v1"),
    "PPO, squashed": (
        ppo.PPOBuilder(ppo.PPOConfig(**PPO, squash_actions=True, normalize_observations=False)),
        "Pendulum-v1",
    ),
}


# Of one observation after the other.
MEMORIES = {
    "PPO, LSTM": (
        ppo.PPOBuilder(ppo.PPOConfig(**{**PPO, "minibatch_size": 8}, memory="lstm", memory_size=8)),
        "Pendulum-v1",
    ),
    "V-MPO, GRU": (vmpo.VMPOBuilder(vmpo.VMPOConfig(**SMALL, memory="gru", memory_size=8)), "Pendulum-v1"),
}


class Run:
    """A run of a few steps, and observations of its environment."""

    def __init__(self, directory, builder, environment_id):
        def make_environment(seed):
            return environments.make_training_environment(environment_id, seed=seed)

        self.directory, self.builder = directory, builder
        experiments.run_experiment(
            experiments.ExperimentConfig(
                builder=builder,
                environment_factory=make_environment,
                directory=directory,
                num_env_steps=64,
                checkpoint_period=8,
                evaluation_period=0,
                evaluation_episodes=1,
                replay="memory",
                tensorboard=False,
            )
        )
        self.environment = make_environment(0)
        self.size = self.environment.observation_spec().shape[0]

    def observations(self, number):
        return 3.0 * np.random.default_rng(number).normal(size=(number, self.size)).astype(np.float32)


@pytest.fixture(scope="module")
def make_run(tmp_path_factory):
    made = {}

    def make(name):
        if name not in made:
            made[name] = Run(tmp_path_factory.mktemp("run") / "run", *(RUNS | MEMORIES)[name])
        return made[name]

    yield make
    for run in made.values():
        run.environment.close()


@pytest.mark.parametrize("name", RUNS)
def test_a_run_alone_gives_the_policy_that_its_builder_and_environment_give(make_run, name):
    run = make_run(name)
    given = experiments.load_policy(run.directory, run.builder, run.environment, explore=True, seed=5)
    alone = minerva_acme.load_policy(run.directory, explore=True, seed=5)
    observations = run.observations(7)
    np.testing.assert_array_equal(alone.batch(observations).action, given.batch(observations).action)
    greedy = minerva_acme.load_policy(run.directory)
    assert (greedy.batch(observations).action != alone.batch(observations).action).any()


def test_a_checkpoint_is_chosen_by_its_steps_or_its_folder(make_run):
    run, observation = make_run("PPO"), np.ones(3, np.float32)
    oldest, _ = sorted((run.directory / "checkpoints").iterdir())
    first, same, last = (
        experiments.load_policy(path, checkpoint=which)(observation).action
        for path, which in [(run.directory, int(oldest.name)), (oldest, "latest"), (run.directory, "latest")]
    )
    np.testing.assert_array_equal(first, same)
    assert (first != last).any()
    with pytest.raises(ValueError, match=str(run.directory)):
        experiments.load_policy(run.directory, checkpoint=33)


@pytest.mark.parametrize("name", RUNS)
def test_weights_that_are_shared_give_the_same_policy_without_the_run(make_run, name, tmp_path):
    run = make_run(name)
    experiments.export_policy(run.directory, file := tmp_path / "new" / "policy.safetensors")
    assert [path.name for path in file.parent.iterdir()] == ["policy.safetensors"]
    observations = run.observations(7)
    np.testing.assert_array_equal(
        minerva_acme.load_policy(file).batch(observations).action,
        experiments.load_policy(run.directory).batch(observations).action,
    )


@pytest.mark.parametrize("name", RUNS)
def test_an_exported_program_acts_like_the_policy_on_batches_of_any_size(make_run, name, tmp_path):
    run = make_run(name)
    experiments.export_policy(run.directory, file := tmp_path / "policy.pt2", format="pt2")
    program = torch.export.load(file).module()
    policy = experiments.load_policy(run.directory)
    for number in (1, 2, 5, 64):
        observations = run.observations(number)
        expected = policy.batch(observations).action
        found = program(torch.from_numpy(observations)).numpy()
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        # The policy acts by arrays, the program by torch.
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)


def test_a_program_is_what_torch_computes_bit_for_bit(make_run, tmp_path):
    run = make_run("MPO")
    experiments.export_policy(run.directory, file := tmp_path / "policy.pt2", format="pt2")
    observations = torch.from_numpy(run.observations(5))
    expected = experiments.load_policy(run.directory).as_module()(observations)
    assert torch.equal(torch.export.load(file).module()(observations), expected)


def test_bounds_hold_in_a_program(make_run, tmp_path):
    run = make_run("MPO")
    experiments.export_policy(run.directory, file := tmp_path / "policy.pt2", format="pt2")
    far = torch.from_numpy(1e6 * run.observations(64))
    found = torch.export.load(file).module()(far)
    assert found.abs().max() == 1.0


def test_an_exploring_policy_is_no_program(make_run):
    policy = experiments.load_policy(make_run("PPO").directory, explore=True)
    with pytest.raises(ValueError, match="must have `as_module`.*BehaviourPolicy has none"):
        policy.as_module()


@pytest.mark.parametrize("damage", ["cut", "other", "header", "metadata"])
def test_a_file_that_is_no_policy_is_a_sentence(make_run, tmp_path, damage):
    run = make_run("PPO")
    experiments.export_policy(run.directory, file := tmp_path / "policy.safetensors")
    content = file.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    if damage == "cut":
        content = content[:-10]
    elif damage == "other":
        content = b"not weights"
    elif damage == "header":
        content = struct.pack("<Q", 2**62) + content[8:]
    else:
        del header["__metadata__"]["minerva_acme"]
        text = json.dumps(header).encode()
        content = struct.pack("<Q", len(text)) + text + content[8 + length :]
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"{file} must (be a whole file in safetensors|say which agent)"):
        minerva_acme.load_policy(file)


def test_weights_of_another_agent_are_a_sentence(make_run, tmp_path):
    experiments.export_policy(make_run("PPO").directory, file := tmp_path / "policy.safetensors")
    with pytest.raises(
        ValueError, match=r"policy\.safetensors must be of this agent, config and environment"
    ):
        experiments.load_policy(file, RUNS["MPO"][0])


def test_a_run_that_only_python_can_make_is_loaded_with_its_builder(tmp_path):
    class Local(ppo.PPOBuilder):
        pass

    builder = Local(ppo.PPOConfig(**PPO))
    config = experiments.ExperimentConfig(
        builder=builder,
        environment_factory=lambda seed: testing.FakeEnvironment(seed=seed),
        directory=tmp_path,
        num_env_steps=16,
        evaluation_episodes=1,
        replay="memory",
        tensorboard=False,
    )
    experiments.run_experiment(config)
    with pytest.raises(ValueError, match=r"only from Python.*Pass the builder to"):
        experiments.load_policy(tmp_path)
    policy = experiments.load_policy(tmp_path, builder)  # the folder knows the specs
    assert policy(np.ones(3, np.float32)).action.shape == (2,)
    # Once it was loaded so, it can be exported neither: nobody else could make the networks.
    with pytest.raises(ValueError, match="only from Python"):
        experiments.export_policy(tmp_path, tmp_path / "a.safetensors")
    assert not pathlib.Path(tmp_path / "a.safetensors").exists()


@pytest.mark.parametrize("name", MEMORIES)
def test_a_loaded_policy_remembers_from_call_to_call_until_it_is_reset(make_run, name, tmp_path):
    run = make_run(name)
    policy = minerva_acme.load_policy(run.directory)
    actor = run.builder.make_actor(minerva_acme.load_policy(run.directory))
    observations = run.observations(4)

    def play(shown):
        policy.reset()
        return [policy(observation).action for observation in shown]

    actor.observe_first(dm_env.restart(observations[0]))
    first = play(observations)
    testing.assert_nests_equal(first, [actor.select_action(each) for each in observations])
    # It depends on what came before, in the same episode alone.
    assert (play(observations[::-1])[2] != first[1]).any()
    testing.assert_nests_equal(play(observations), first)
    experiments.export_policy(run.directory, file := tmp_path / "policy.safetensors")
    shared = minerva_acme.load_policy(file)
    testing.assert_nests_equal([shared(each).action for each in observations], first)
    with pytest.raises(ValueError, match="A policy with memory cannot be exported as a program"):
        experiments.export_policy(run.directory, tmp_path / "policy.pt2", format="pt2")


def test_a_policy_without_memory_can_be_reset_and_acts_on(make_run):
    policy, observation = minerva_acme.load_policy(make_run("PPO").directory), np.ones(3, np.float32)
    first = policy(observation).action
    policy.reset()
    testing.assert_nests_equal(policy(observation).action, first)


@pytest.mark.parametrize("name", MEMORIES)
def test_a_checkpoint_with_memory_is_evaluated_by_an_actor_that_remembers(make_run, name):
    run = make_run(name)
    policy = minerva_acme.load_policy(run.directory)

    def play(environment, forgets):
        policy.reset()
        episode_return, timestep = 0.0, environment.reset()
        while not timestep.last():
            if forgets:
                policy.reset()
            timestep = environment.step(policy(timestep.observation).action)
            episode_return += float(timestep.reward)
        return episode_return

    def make_environment():
        return environments.make_training_environment("Pendulum-v1", seed=5)

    result = experiments.evaluate_checkpoint(run.directory, run.builder, make_environment(), 2)
    with contextlib.closing(make_environment()) as environment:
        assert result.returns == pytest.approx([play(environment, forgets=False) for _ in range(2)], rel=1e-9)
    with contextlib.closing(make_environment()) as environment:
        assert play(environment, forgets=True) != pytest.approx(result.returns[0], rel=1e-6)
