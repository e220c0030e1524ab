import collections
import contextlib
import dataclasses
import functools
import json
import pathlib
import shutil
import struct

import dm_env
import numpy as np
import pytest
import safetensors.numpy
import torch
import tree
from torch import nn

import minerva_acme
from minerva_acme import actors, builders, environments, experiments, runs, specs, testing
from minerva_acme.agents import dqn, mpo, ppo, r2d2, td3, vmpo
from minerva_acme.runs import checkpointing, loaded_policy, policies
from tests.closeness import assert_close_to_norm

SMALL = {"num_environments": 2, "rollout_steps": 16, "policy_layer_sizes": (8,), "value_layer_sizes": (8,)}
PPO = {**SMALL, "minibatch_size": 4, "num_epochs": 1}
MPO = {
    "batch_size": 8,
    "min_replay_size": 8,
    "samples_per_insert": 2.0,
    "policy_layer_sizes": (8,),
    "critic_layer_sizes": (8,),
}
RUNS = {
    "MPO": (mpo.MPOBuilder(mpo.MPOConfig(**MPO)), "Pendulum-v1"),
    "V-MPO": (vmpo.VMPOBuilder(vmpo.VMPOConfig(**SMALL)), "Pendulum-v1"),
    "PPO": (ppo.PPOBuilder(ppo.PPOConfig(**PPO)), "Pendulum-v1"),
    "PPO, discrete": (ppo.PPOBuilder(ppo.PPOConfig(**PPO)), "CartPole-v1"),
    "PPO, squashed": (
        ppo.PPOBuilder(ppo.PPOConfig(**PPO, squash_actions=True, normalize_observations=False)),
        "Pendulum-v1",
    ),
}

SMALL_REPLAY = {"batch_size": 8, "min_replay_size": 8, "samples_per_insert": 2.0}
# They explore for the first 32 of the 64 steps of training, and then act as they do without exploring.
SCHEDULED = {
    "DQN": (
        dqn.DQNBuilder(
            dqn.DQNConfig(
                **SMALL_REPLAY,
                critic_layer_sizes=(8,),
                initial_epsilon=1.0,
                final_epsilon=0.0,
                epsilon_steps=32,
            )
        ),
        "CartPole-v1",
    ),
    "TD3": (
        td3.TD3Builder(
            td3.TD3Config(
                **SMALL_REPLAY,
                policy_layer_sizes=(8,),
                critic_layer_sizes=(8,),
                random_steps=32,
                exploration_stddev=0.0,
            )
        ),
        "Pendulum-v1",
    ),
}
# Each environment explores more or less.
SHARES = {
    "R2D2, 3 environments": (
        r2d2.R2D2Builder(
            r2d2.R2D2Config(
                num_environments=3,
                layer_sizes=(8,),
                memory_size=8,
                burn_in=2,
                sequence_length=8,
                sequence_period=4,
                min_replay_size=2,
                batch_size=4,
                samples_per_insert=4.0,
                first_epsilon=0.5,
            )
        ),
        "CartPole-v1",
    ),
}

# Of one observation after the other.
MEMORIES = {
    "PPO, LSTM": (
        ppo.PPOBuilder(ppo.PPOConfig(**{**PPO, "minibatch_size": 8}, memory="lstm", memory_size=8)),
        "Pendulum-v1",
    ),
    "MPO, GRU": (
        mpo.MPOBuilder(mpo.MPOConfig(**MPO, memory="gru", memory_size=8, burn_in=2, critic_loss_steps="all")),
        "Pendulum-v1",
    ),
    "V-MPO, GRU": (vmpo.VMPOBuilder(vmpo.VMPOConfig(**SMALL, memory="gru", memory_size=8)), "Pendulum-v1"),
}


def make_environment_of(environment_id, seed):
    # 20 steps are as good as Pendulum's 200.
    settings = {"max_episode_steps": 20} if environment_id == "Pendulum-v1" else {}
    return environments.make_training_environment(environment_id, seed=seed, **settings)


class Run:
    """A run of a few steps, and observations of its environment."""

    def __init__(self, directory, builder, environment_id):
        def make_environment(seed):
            return make_environment_of(environment_id, seed)

        self.directory, self.builder = directory, builder
        experiments.run_experiment(
            experiments.ExperimentConfig(
                builder=builder,
                environment_factory=make_environment,
                directory=directory,
                num_env_steps=64,
                checkpoint_period=32,
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
            made[name] = Run(
                tmp_path_factory.mktemp("run") / "run", *(RUNS | SCHEDULED | SHARES | MEMORIES)[name]
            )
        return made[name]

    yield make
    for run in made.values():
        run.environment.close()


@pytest.fixture(scope="module")
def load_program(make_run, tmp_path_factory):
    """Exports the policy of a run as a program, once, and loads it."""

    @functools.cache
    def load(name, actions="agent"):
        file = tmp_path_factory.mktemp("program") / "policy.pt2"
        runs.export_policy(make_run(name).directory, file, format="pt2", actions=actions)
        return torch.export.load(file).module()

    return load


@pytest.mark.parametrize("name", ["MPO", "V-MPO", "PPO", "PPO, discrete"])
def test_a_run_alone_gives_the_policy_that_its_builder_and_environment_give(make_run, name):
    run = make_run(name)
    given = runs.load_policy(run.directory, run.builder, run.environment, explore=True, seed=5)
    alone = minerva_acme.load_policy(run.directory, explore=True, seed=5)
    observations = run.observations(7)
    np.testing.assert_array_equal(alone.batch(observations).action, given.batch(observations).action)
    greedy = minerva_acme.load_policy(run.directory)
    assert (greedy.batch(observations).action != alone.batch(observations).action).any()


@pytest.mark.parametrize("name", SCHEDULED)
def test_a_loaded_policy_explores_as_after_the_steps_of_its_weights(make_run, name, tmp_path):
    run = make_run(name)
    runs.export_policy(run.directory, file := tmp_path / "policy.safetensors")
    observations = run.observations(64)
    greedy = runs.load_policy(run.directory).batch(observations).action
    for path in (run.directory, file):
        explored = runs.load_policy(path, explore=True).batch(observations).action
        np.testing.assert_array_equal(explored, greedy)
    longer = {"DQN": {"epsilon_steps": 640}, "TD3": {"random_steps": 65}}[name]
    builder = type(run.builder)(dataclasses.replace(run.builder.config, **longer))
    explored = runs.load_policy(file, builder, run.environment, explore=True).batch(observations).action
    assert (explored != greedy).any()


@pytest.mark.parametrize("number", [1, 5])
def test_shares_of_random_actions_are_loaded_for_any_number_of_environments(make_run, number):
    run = make_run("R2D2, 3 environments")
    policy = runs.load_policy(run.directory, explore=True)
    state, chosen = policy.initial_state(number), []
    for _ in range(400):
        output, _ = policy.step(run.observations(number), state)
        chosen.append(output.action)
    usual = np.stack(chosen).mean(axis=0).round()
    shares = 2 * (np.stack(chosen) != usual).mean(axis=0)  # half of the random actions are the usual ones
    wanted = np.resize(run.builder.epsilons, number)
    assert shares.shape == (number,)
    np.testing.assert_allclose(shares, wanted, atol=0.2)  # more than four standard deviations


def test_the_weights_of_a_checkpoint_folder_with_another_name_know_its_steps(make_run, tmp_path):
    directory = shutil.copytree(make_run("PPO").directory, tmp_path / "run")
    checkpoint = checkpointing.find(directory)
    copied = shutil.copytree(checkpoint, checkpoint.with_name("mine"))
    runs.export_policy(directory, tmp_path / "weights.safetensors", checkpoint=copied)
    assert runs.load_policy(tmp_path / "weights.safetensors")
    found = policies.find(tmp_path / "weights.safetensors")
    assert found.env_steps == checkpointing.env_steps(checkpoint) > 0


def test_a_checkpoint_is_chosen_by_its_steps_or_its_folder(make_run):
    run, observation = make_run("PPO"), np.ones(3, np.float32)
    oldest, _ = sorted((run.directory / "checkpoints").iterdir())
    first, same, last = (
        runs.load_policy(path, checkpoint=which)(observation).action
        for path, which in [(run.directory, int(oldest.name)), (oldest, "latest"), (run.directory, "latest")]
    )
    np.testing.assert_array_equal(first, same)
    assert (first != last).any()
    with pytest.raises(ValueError, match=str(run.directory)):
        runs.load_policy(run.directory, checkpoint=33)


@pytest.mark.parametrize("name", ["MPO", "V-MPO", "PPO, discrete", "PPO, squashed"])
@pytest.mark.promise("`load_policy` needs no builder, environment or Reverb; exported")
def test_weights_that_are_shared_give_the_same_policy_without_the_run(make_run, name, tmp_path):
    run = make_run(name)
    runs.export_policy(run.directory, file := tmp_path / "new" / "policy.safetensors")
    assert [path.name for path in file.parent.iterdir()] == ["policy.safetensors"]
    observations = run.observations(7)
    np.testing.assert_array_equal(
        minerva_acme.load_policy(file).batch(observations).action,
        runs.load_policy(run.directory).batch(observations).action,
    )


@pytest.mark.parametrize("name", ["MPO", "PPO, discrete", "PPO, squashed"])
@pytest.mark.promise("Loading and export")
def test_an_exported_program_acts_like_the_policy_on_batches_of_any_size(make_run, load_program, name):
    run = make_run(name)
    program = load_program(name)
    policy = runs.load_policy(run.directory)
    for number in (1, 2, 5, 64):
        observations = run.observations(number)
        expected = policy.batch(observations).action
        found = program(torch.from_numpy(observations)).numpy()
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        # The policy acts by arrays, the program by torch.
        assert_close_to_norm(found, expected)


def test_a_program_is_what_torch_computes_bit_for_bit(make_run, load_program):
    run = make_run("MPO")
    observations = torch.from_numpy(run.observations(5))
    expected = runs.load_policy(run.directory).as_module()(observations)
    assert torch.equal(load_program("MPO")(observations), expected)


def test_bounds_hold_in_a_program(make_run, load_program):
    far = torch.from_numpy(1e6 * make_run("MPO").observations(64))
    assert load_program("MPO")(far).abs().max() <= 1.0
    builder = mpo.MPOBuilder(mpo.MPOConfig(**MPO, bounded_mean=False))
    with environments.make_training_environment("Pendulum-v1") as environment:
        spec = specs.make_environment_spec(environment)
    generator = torch.Generator().manual_seed(0)
    nets = builder.make_networks(spec, generator)
    nets.policy.mean_head.weight.data.mul_(1e4)
    program = builder.make_policy(nets, spec, generator, evaluation=True).as_module()
    assert nets.policy(far).mean.abs().max() > 1.0
    assert program(far).abs().max() == 1.0


def test_an_exploring_policy_is_no_program(make_run):
    policy = runs.load_policy(make_run("PPO").directory, explore=True)
    with pytest.raises(ValueError, match="Only a policy for evaluation.*this one explores"):
        policy.as_module()


@pytest.mark.parametrize("damage", ["cut", "other", "header", "metadata"])
def test_a_file_that_is_no_policy_is_a_sentence(make_run, tmp_path, damage):
    run = make_run("PPO")
    runs.export_policy(run.directory, file := tmp_path / "policy.safetensors")
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
    with pytest.raises(
        ValueError, match=f"{file} must (be a complete safetensors file|name the agent of its weights)"
    ):
        minerva_acme.load_policy(file)


@pytest.mark.parametrize(
    "metadata", [{"checkpoint": "x"}, {"score": "{}"}, {"score": "[1"}, {"score": "5"}, {"score": "[" * 9999}]
)
def test_a_file_whose_metadata_says_nonsense_is_a_sentence(make_run, tmp_path, metadata):
    runs.export_policy(make_run("TD3").directory, file := tmp_path / "policy.safetensors")
    with safetensors.safe_open(file, framework="numpy") as weights:
        tensors = {name: weights.get_tensor(name) for name in weights.keys()}  # noqa: SIM118
        metadata = weights.metadata() | metadata
    safetensors.numpy.save_file(tensors, file, metadata)
    for read in (policies.find, runs.load_policy):
        with pytest.raises(ValueError, match=f"{file} must say which checkpoint its weights are of"):
            read(file)


def test_weights_of_another_agent_are_a_sentence(make_run, tmp_path):
    runs.export_policy(make_run("PPO").directory, file := tmp_path / "policy.safetensors")
    with pytest.raises(
        ValueError, match=r"policy\.safetensors must belong to this agent, config and environment"
    ):
        runs.load_policy(file, RUNS["MPO"][0])


class WithoutANorm(mpo.MPOBuilder):
    def make_networks(self, spec, generator):
        networks = super().make_networks(spec, generator)
        networks.policy.torso[1] = nn.Identity()
        return networks


@pytest.mark.parametrize("is_file", [True, False], ids=["file", "run"])
def test_weights_of_a_network_with_a_layer_more_are_refused(is_file, make_run, tmp_path):
    path = make_run("MPO").directory
    if is_file:
        runs.export_policy(path, path := tmp_path / "policy.safetensors")
    with pytest.raises(ValueError, match=rf"{path}.*`torso.1.weight` is \(8,\) there, missing here.* again"):
        runs.load_policy(path, WithoutANorm(RUNS["MPO"][0].config))


def test_weights_for_one_action_are_refused_for_several(make_run):
    run = make_run("MPO")
    spec = specs.make_environment_spec(run.environment)
    several = spec._replace(actions=specs.BoundedArray((3,), np.float32, -1.0, 1.0))
    with pytest.raises(ValueError, match=r"`mean_head.weight` is \(1, 8\) there, \(3, 8\) here"):
        runs.load_policy(run.directory, run.builder, several)


@pytest.mark.parametrize("is_file", [True, False], ids=["file", "run"])
def test_an_environment_with_other_bounds_of_actions_than_in_training_is_refused(is_file, make_run, tmp_path):
    run = make_run("MPO")
    path = run.directory
    if is_file:
        runs.export_policy(path, path := tmp_path / "policy.safetensors")
    spec = specs.make_environment_spec(run.environment)
    low, high = specs.bounds(spec.actions)
    wide = spec._replace(actions=spec.actions.replace(minimum=2 * low, maximum=2 * high))
    assert runs.load_policy(path, run.builder, spec)
    with pytest.raises(ValueError, match=r"actions must be .*, as .* has learned them, got .*`--env ID`"):
        runs.load_policy(path, run.builder, wide)
    if not is_file:
        with pytest.raises(ValueError, match="as .* has learned them"):
            runs.load_policy(checkpointing.find(path), run.builder, wide)
        copy = shutil.copytree(path, tmp_path / "copy")
        (copy / "run.json").unlink()
        assert runs.load_policy(copy, run.builder, wide)  # nothing is known of it


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
        runs.load_policy(tmp_path)
    policy = runs.load_policy(tmp_path, builder)  # the folder knows the specs
    assert policy(np.ones(3, np.float32)).action.shape == (2,)
    # Once it was loaded so, it can be exported neither: nobody else could make the networks.
    with pytest.raises(ValueError, match="only from Python"):
        runs.export_policy(tmp_path, tmp_path / "a.safetensors")
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
    runs.export_policy(run.directory, file := tmp_path / "policy.safetensors")
    shared = minerva_acme.load_policy(file)
    testing.assert_nests_equal([shared(each).action for each in observations], first)


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
        return make_environment_of("Pendulum-v1", seed=5)

    result = runs.evaluate_checkpoint(run.directory, run.builder, make_environment(), 2)
    with contextlib.closing(make_environment()) as environment:
        assert result.returns == pytest.approx([play(environment, forgets=False) for _ in range(2)], rel=1e-9)
    with contextlib.closing(make_environment()) as environment:
        assert play(environment, forgets=True) != pytest.approx(result.returns[0], rel=1e-6)


VECTOR = specs.Array((3,), np.float32, name="observation")
PICTURE = specs.BoundedArray((2, 2, 1), np.uint8, 0, 255, name="pixels")


class Recorder(builders.AgentPolicy):
    """Acts by zeros, and keeps what it was shown."""

    def batch(self, observations):
        self.shown = observations
        return actors.PolicyOutput(np.zeros((len(tree.flatten(observations)[0]), 2), np.float32))

    def set_variables(self, values):
        self.variables = values

    def save(self):
        return "state"

    def restore(self, state):
        self.restored = state


def checked(spec=VECTOR):
    policy = Recorder()
    return loaded_policy.LoadedPolicy(policy, spec), policy


def test_a_policy_refuses_observations_that_do_not_fit_its_spec():
    policy = minerva_acme.load_policy("ppo_default:CartPole-v1")
    with pytest.raises(
        specs.SpecError, match=r"`observation` must be float32 of shape \(4,\), got float64 of shape \(1,\)"
    ):
        policy(np.zeros(1))
    with pytest.raises(specs.SpecError, match=r"`observation` must be finite, got nan at index \(1,\)"):
        policy(np.array([0.0, np.nan, 0.0, 0.0], np.float32))
    with pytest.raises(specs.SpecError, match=r"For several observations call `policy.batch"):
        policy(np.zeros((5, 4), np.float32))
    with pytest.raises(specs.SpecError, match=r"That is one observation: call `policy\(observation\)`"):
        policy.batch(np.zeros(4, np.float32))
    assert policy([0.0, 0.0, 0.0, 0.0]).action in (0, 1)
    assert policy.batch(np.zeros((5, 4))).action.shape == (5,)


@pytest.mark.parametrize(
    "given",
    [
        [0.0, 1.5, -2.0],
        (0, 1.5, np.float64(-2.0)),
        np.array([0.0, 1.5, -2.0]),
        np.array([0.0, 1.5, -2.0], np.float16),
        np.array([0.0, 1.5, -2.0], ">f4"),
        np.array([-2.0, 1.5, 0.0], np.float32)[::-1],
        torch.tensor([0.0, 1.5, -2.0]),
    ],
)
def test_what_loses_nothing_but_digits_is_converted(given):
    policy, inner = checked()
    policy(given)
    np.testing.assert_array_equal(inner.shown, np.array([[0.0, 1.5, -2.0]], np.float32))
    assert inner.shown.dtype == np.float32 and inner.shown.flags.c_contiguous
    policy.batch([given, given])
    assert inner.shown.shape == (2, 3)


def test_training_observations_arrive_as_they_are():
    policy, inner = checked()
    policy.batch(observations := np.ones((4, 3), np.float32))
    assert inner.shown is observations


@pytest.mark.parametrize(
    ("spec", "given", "message"),
    [
        (
            VECTOR,
            np.zeros((3, 1)),
            r"got float64 of shape \(3, 1\). Take observations from an environment that is",
        ),
        (VECTOR, np.float32(1.0), r"got float32 of shape \(\)"),
        (VECTOR, np.zeros((7, 3)), "`policy.batch"),
        (VECTOR, [1e300, 0.0, 0.0], "must be finite, got inf at"),
        (VECTOR, [1e16, 0.0, 0.0], r"within ±1e\+15"),
        (VECTOR, [2**24 + 1, 0, 0], "must be float32 .* got int64 .* Convert it as in training"),
        (VECTOR, np.array(["1", "2", "3"]), "must be float32 .* got str"),
        (VECTOR, np.array([1j, 0, 0]), "must be float32 .* got complex128"),
        (VECTOR, [[1.0], 2.0, 3.0], "got a list"),
        (VECTOR, None, "got None"),
        (VECTOR, {"a": [1.0], "b": [0.0, 0.0]}, "concatenated its parts .wrappers.ConcatObservationWrapper"),
        (PICTURE, np.zeros((2, 2, 1)), "an image stays uint8"),
        (PICTURE, np.full((2, 2, 1), 256), "must be uint8 .* got int64"),
        (specs.DiscreteArray(3), 3, r"must be in \[0, 2\], .* got 3"),
        (VECTOR, (np.zeros(3), {}), r"Gymnasium's `reset` returns \(observation, info\): pass the first"),
        ({"a": VECTOR, "b": PICTURE}, np.zeros(3), r"must have the fields \['a', 'b'\], got float64 of"),
        ({"a": VECTOR, "b": PICTURE}, {"a": np.zeros(3)}, r"got the fields \['a'\]"),
        ({"a": VECTOR}, {"a": [np.nan, 0.0, 0.0]}, r"`observation\['a'\]` must be finite, got nan"),
        ((VECTOR, VECTOR), [np.zeros(3)], "must have 2 elements, got 1 elements"),
    ],
)
@pytest.mark.promise("A loaded policy takes observations as in training or as the bare")
def test_an_observation_unlike_those_of_training_is_refused_by_name(spec, given, message):
    policy, inner = checked(spec)
    with pytest.raises(specs.SpecError, match=message):
        policy(given)
    assert not hasattr(inner, "shown")


def test_a_dict_with_the_right_parts_is_taken_and_its_axes_are_compared():
    policy, inner = checked({"a": VECTOR, "b": (PICTURE,)})
    policy(collections.OrderedDict(b=[[[[1], [2]], [[3], [4]]]], a=[1, 2, 3]))
    assert inner.shown["a"].tolist() == [[1.0, 2.0, 3.0]]
    assert inner.shown["b"][0].dtype == np.uint8
    two, one = np.zeros((2, 3)), np.zeros((1, 2, 2, 1), np.uint8)
    with pytest.raises(
        specs.SpecError, match=r"`observation\['b'\]\[0\]` must be uint8 .* \(2, 2, 2, 1\), got .* \(1, 2"
    ):
        policy.batch({"a": two, "b": (one,)})
    with pytest.raises(
        specs.SpecError, match=r"shape \(3,\) behind a leading axis of 1 or more, got .* \(0, 3\)"
    ):
        checked()[0].batch(np.zeros((0, 3)))


def test_all_else_of_a_loaded_policy_is_that_of_the_policy_within():
    policy, inner = checked()
    policy.set_variables([1])
    policy.restore("saved")
    assert (inner.variables, inner.restored, policy.save()) == ([1], "saved", "state")
    assert policy.initial_state(2) == ()
    output, state = policy.step([[1, 2, 3]], ())
    assert (output.action.shape, state) == ((1, 2), ())


@pytest.mark.parametrize("name", MEMORIES)
def test_a_loaded_policy_with_memory_checks_what_it_is_shown_too(make_run, name):
    policy = minerva_acme.load_policy(make_run(name).directory)
    with pytest.raises(specs.SpecError, match="got nan"):
        policy([np.nan, 0.0, 0.0])
    state = policy.initial_state(1)
    output, state = policy.step(np.zeros((1, 3)), state)
    assert output.action.shape == (1, 1)
    with pytest.raises(specs.SpecError, match="`state` must be for 2 environments.* got 1"):
        policy.step(np.zeros((2, 3)), state)


def test_loading_leaves_the_global_generator_where_it_was(make_run):
    before = torch.get_rng_state()
    minerva_acme.load_policy(make_run("PPO").directory)
    assert torch.equal(torch.get_rng_state(), before)


def scaled(actions):
    """Pendulum's torque, from -2 to 2, as `CanonicalActionWrapper` rounds it."""
    return ((actions + 1) * 2.0 - 2.0).clip(-2.0, 2.0)


@pytest.mark.parametrize("name", ["MPO", "PPO, squashed", "PPO, LSTM"])
def test_actions_are_the_agents_within_one_or_the_tasks_own(make_run, name, tmp_path):
    run = make_run(name)
    runs.export_policy(run.directory, file := tmp_path / "policy.safetensors")
    observations = run.observations(20)
    agent = minerva_acme.load_policy(run.directory)
    bounds = environments.make("Pendulum-v1").action_spec()
    assert bounds.maximum == 2.0
    for task in (
        minerva_acme.load_policy(run.directory, actions="task"),
        minerva_acme.load_policy(file, actions="task"),
        minerva_acme.load_policy(run.directory, run.builder, run.environment, actions="task"),
    ):
        agent.reset()
        for observation in observations:
            action = task(observation).action
            bounds.validate(action)
            np.testing.assert_array_equal(action, scaled(agent(observation).action))
    if name not in MEMORIES:
        np.testing.assert_array_equal(
            task.batch(observations).action, scaled(agent.batch(observations).action)
        )


@pytest.mark.promise("`actions=")
def test_the_task_takes_what_its_wrappers_make_of_the_agents_action(make_run):
    run = make_run("MPO")
    bare, wrapped = (
        environments.make("Pendulum-v1", seed=3),
        environments.make_training_environment("Pendulum-v1", seed=3),
    )
    agent, task = (minerva_acme.load_policy(run.directory, actions=which) for which in ("agent", "task"))
    with contextlib.closing(bare), contextlib.closing(wrapped):
        ours, theirs = bare.reset(), wrapped.reset()
        for _ in range(30):
            ours = bare.step(task(ours.observation).action)
            theirs = wrapped.step(agent(theirs.observation).action)
            np.testing.assert_array_equal(np.float32(ours.reward), theirs.reward)


def test_a_program_acts_in_the_bounds_that_are_asked_for(make_run, load_program, tmp_path):
    run = make_run("MPO")
    agent, task = (load_program("MPO", which) for which in ("agent", "task"))
    observations = torch.from_numpy(run.observations(64))
    assert torch.equal(task(observations), scaled(agent(observations)))
    with pytest.raises(ValueError, match="`actions` must be 'agent' if `format` is safetensors"):
        runs.export_policy(run.directory, tmp_path / "file", actions="task")


def test_discrete_actions_are_the_tasks_already(make_run):
    run = make_run("PPO, discrete")
    observations = run.observations(7)
    agent, task = (minerva_acme.load_policy(run.directory, actions=which) for which in ("agent", "task"))
    np.testing.assert_array_equal(task.batch(observations).action, agent.batch(observations).action)


def forget_task_actions(directory):
    content = json.loads((directory / "run.json").read_text())
    del content["environment_specs"]["task_actions"]
    (directory / "run.json").write_text(json.dumps(content))
    return content


def test_for_a_run_of_before_the_environment_is_asked_or_must_be_given(make_run, tmp_path):
    run = make_run("MPO")
    directory = shutil.copytree(run.directory, tmp_path / "run")
    content = forget_task_actions(directory)
    assert minerva_acme.load_policy(directory, actions="task").batch(run.observations(9)).action.max() <= 2.0
    content["environment"] = "NoSuchEnvironment-v0"
    (directory / "run.json").write_text(json.dumps(content))
    with pytest.raises(
        ValueError, match="are not stored with these weights.*Pass the environment, wrapped as in training"
    ):
        minerva_acme.load_policy(directory, actions="task")
    assert minerva_acme.load_policy(directory, environment=run.environment, actions="task")
    with pytest.raises(ValueError, match="`actions` must be 'agent' or 'task', got 'own'"):
        minerva_acme.load_policy(directory, actions="own")


class Mixed(dm_env.Environment):
    """Its observations are a nest: vectors, a number, a choice, text, and a part that has parts."""

    def __init__(self, seed=0):
        self._random = np.random.default_rng(seed)
        self._left = 0

    def observation_spec(self):
        return collections.OrderedDict(  # as dm_control's
            speed=specs.Array((2,), np.float64),
            words=specs.StringArray(()),
            gear=specs.DiscreteArray(3),
            arm={"angle": specs.Array((), np.float32), "on": specs.Array((1,), np.bool_)},
        )

    def action_spec(self):
        return specs.BoundedArray((1,), np.float32, -1.0, 1.0)

    def reset(self):
        self._left = 4
        return dm_env.restart(observation_of_mixed(self._random.random()))

    def step(self, action):
        if not self._left:
            return self.reset()
        self._left -= 1
        end = dm_env.transition if self._left else dm_env.termination
        return end(1.0, observation_of_mixed(self._random.random()))


def observation_of_mixed(number):
    return {
        "arm": {"angle": np.float32(number), "on": np.ones(1, np.bool_)},
        "gear": np.int32(2),
        "speed": np.array([0.25, -number]),
        "words": "faster",
    }


def make_mixed(seed, num=1):
    def make():
        return environments.make_training_environment(Mixed(seed))

    return make() if num == 1 else environments.make_vector([make] * num, processes=False)


@pytest.mark.parametrize("num_environments", [1, 2])
def test_a_policy_takes_what_the_task_observes_as_well_as_what_it_was_trained_on(tmp_path, num_environments):
    builder = ppo.PPOBuilder(ppo.PPOConfig(**PPO | {"num_environments": num_environments}))
    experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=builder,
            environment_factory=functools.partial(make_mixed, num=num_environments),
            directory=tmp_path / "run",
            num_env_steps=32,
            evaluation_episodes=0,
            evaluation_period=0,
            tensorboard=False,
        )
    )
    file = tmp_path / "policy.safetensors"
    runs.export_policy(tmp_path / "run", file)
    with contextlib.closing(make_mixed(0)) as environment:
        wrapped = environment.reset().observation
        assert wrapped.shape == (7,)  # angle, on, one of three gears, two speeds
        for policy in (
            minerva_acme.load_policy(tmp_path / "run"),
            minerva_acme.load_policy(file),
            minerva_acme.load_policy(tmp_path / "run", builder, environment),
        ):
            expected = policy(wrapped).action
            own = Mixed().reset().observation
            np.testing.assert_array_equal(policy(own).action, expected)
            # Lists of numbers and other digits are as good.
            np.testing.assert_array_equal(policy(own | {"speed": own["speed"].tolist()}).action, expected)
            several = [observation_of_mixed(number) for number in (0.0, 0.5, 1.0)]
            batch = tree.map_structure(lambda *leaves: np.stack(leaves), *several)
            np.testing.assert_allclose(
                policy.batch(batch).action, [policy(each).action for each in several], atol=1e-6
            )
            with pytest.raises(
                specs.SpecError, match=r"`observation\['gear'\]` must be in \[0, 2\], .* got 3"
            ):
                policy(own | {"gear": 3})
            with pytest.raises(specs.SpecError, match=r"`observation\['speed'\]` must be finite, got nan"):
                policy(own | {"speed": np.array([0.0, np.nan])})
            for other in ({"speed": np.zeros(2)}, np.zeros(3, np.float32), 2):
                with pytest.raises(specs.SpecError, match=r"`observation` must be float32 of shape \(7,\)"):
                    policy(other)
            with pytest.raises(
                specs.SpecError,
                match=r"`observation\['speed'\]` must be float64 of shape \(3, 2\), got .* \(2, 2\)",
            ):
                policy.batch(batch | {"speed": batch["speed"][:2]})


class Corridor(testing.FakeEnvironment):
    def __init__(self, seed=0):
        super().__init__(observation_spec=specs.DiscreteArray(5), seed=seed, episode_length=4)


def test_a_policy_of_a_choice_takes_its_number(tmp_path):
    experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=ppo.PPOBuilder(ppo.PPOConfig(**PPO | {"num_environments": 1})),
            environment_factory=lambda seed: environments.make_training_environment(Corridor(seed)),
            directory=tmp_path,
            num_env_steps=32,
            evaluation_episodes=0,
            evaluation_period=0,
            tensorboard=False,
        )
    )
    policy = minerva_acme.load_policy(tmp_path)
    for number in range(5):
        np.testing.assert_array_equal(policy(number).action, policy(np.eye(5)[number]).action)
    with pytest.raises(specs.SpecError, match=r"in \[0, 4\], .* got 5"):
        policy(5)
