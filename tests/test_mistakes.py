"""What people get wrong, and what they are told: what must be, what was found, and the way out."""

import dataclasses
import errno
import importlib
import os
import pathlib
import socket
import sys
from collections.abc import Callable
from typing import Any

import dm_env
import gymnasium
import numpy as np
import pytest
import torch

from minerva_acme import (
    adders,
    builders,
    counting,
    environments,
    experiments,
    learners,
    networks,
    observers,
    replay,
    runs,
    specs,
    testing,
    types,
    video,
    wrappers,
)
from minerva_acme.agents import mpo, ppo, registry, vmpo
from minerva_acme.cli import commands, main
from minerva_acme.replay import backends, dataset, layouts
from minerva_acme.replay.reverb import ports
from minerva_acme.runs import checkpointing, run_folder, run_lock
from minerva_acme.video import recording

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
FLAT = testing.FakeEnvironment()
SPEC = specs.make_environment_spec(FLAT)
TINY_PPO = ppo.PPOConfig(
    num_environments=1,
    rollout_steps=8,
    minibatch_size=4,
    num_epochs=1,
    policy_layer_sizes=(4,),
    value_layer_sizes=(4,),
)
TINY_MPO = mpo.MPOConfig(
    batch_size=2, min_replay_size=2, samples_per_insert=1.0, policy_layer_sizes=(4,), critic_layer_sizes=(4,)
)


@dataclasses.dataclass
class Surroundings:
    """What a mistake is made in."""

    monkeypatch: pytest.MonkeyPatch
    folder: pathlib.Path  # empty
    run: pathlib.Path  # of PPO, trained for 16 steps; not to be changed
    names: dict[str, str] = dataclasses.field(
        default_factory=dict
    )  # what the message has, by what it is noted as


Mistake = Callable[[Surroundings], Any]
MISTAKES: dict[str, tuple[type[Exception], str, Mistake]] = {}


def mistake(message: str, error: type[Exception] = ValueError) -> Callable[[Mistake], Mistake]:
    """Notes a function that makes a mistake, and what must come of it; <run> and <folder> are the paths,
    <...> is what torch says."""

    def note(function: Mistake) -> Mistake:
        MISTAKES[function.__name__] = (error, message, function)
        return function

    return note


def make_config(builder, directory, **options):
    return experiments.ExperimentConfig(
        builder=builder,
        directory=directory,
        **{
            "environment_factory": lambda seed: testing.FakeEnvironment(seed=seed),
            "num_env_steps": 16,
            "evaluation_episodes": 1,
            "replay": "memory",
            "tensorboard": False,
            "checkpoint_replay": False,
            **options,
        },
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("mistakes") / "run"
    experiments.run_experiment(make_config(ppo.PPOBuilder(TINY_PPO), directory))
    return directory


def make_store(layout, **options):
    table = replay.TableConfig(
        name="table",
        signature=layout.signature,
        **{"max_size": 10, "rate_limiter": replay.MinSize(1), **options},
    )
    return replay.make_server([table], "memory", seed=0)


def make_adder(**options):
    layout = layouts.TransitionLayout(SPEC)
    client = make_store(layout).client()
    settings = dict(client=client, table="table", layout=layout, n_step=1, discount=0.9)
    return adders.NStepTransitionAdder(**{**settings, **options})


def step(reward=1.0, observation=None, last=False):
    observation = np.zeros(3, np.float32) if observation is None else observation
    step_type = dm_env.StepType.LAST if last else dm_env.StepType.MID
    return dm_env.TimeStep(step_type, np.float32(reward), np.float32(1.0), observation)


FIRST = dm_env.restart(np.zeros(3, np.float32))
ACTION = np.zeros(2, np.float32)


def play(adder, *calls):
    adder.add_first(FIRST)
    for call in calls:
        adder.add(*call)


# Environments.


@mistake(
    "`environment_id` must be dm_control/<domain>/<task> or an id of Gymnasium's, got "
    "'dm_control/cartpole/swing_up'. Did you mean dm_control/cartpole/swingup, "
    "dm_control/cartpole/swingup_sparse, dm_control/acrobot/swingup, dm_control/cartpole/two_poles, "
    "dm_control/pendulum/swingup?"
)
def a_task_of_dm_control_misspelt(s):
    environments.make("dm_control/cartpole/swing_up")


@mistake(
    "`environment_id` must be dm_control/<domain>/<task> or an id of Gymnasium's, got "
    "'HalfCheeta-v5'. Did you mean <...>?"
)
def an_id_of_gymnasium_misspelt(s):
    environments.make("HalfCheeta-v5")


@mistake(
    "`environment_id` must be dm_control/<domain>/<task> or an id of Gymnasium's, got "
    "'gymnasium/Pendulum-v7'. Did you mean Pendulum-v1, <...>?"
)
def a_version_of_gymnasium_that_there_is_not(s):
    environments.make("gymnasium/Pendulum-v7")


@mistake("`seed` must be None or in [0, 2**32), got -1.")
def a_negative_seed_of_an_environment(s):
    environments.make("CartPole-v1", seed=-1)


@mistake(
    "`seed` must be None for an existing environment without a method `seed`, got 1 for a"
    " FakeEnvironment. Make it with its seed, wrap dm_control's in `wrappers.DmControlRandomState`, or add"
    " the method to yours."
)
def a_seed_for_an_environment_that_is_made(s):
    environments.make_training_environment(FLAT, seed=1)


@mistake(
    "`action_spec` must be bounded on both sides to be scaled to [-1, 1], got Array(2,) float32. Give"
    " it bounds in a wrapper around the environment."
)
def actions_without_bounds_in_an_environment(s):
    environments.make_training_environment(testing.FakeEnvironment.continuous())


@mistake(
    "`observation_spec`['name'] must be a float array to be concatenated, got Array() object. Turn it into a "
    "vector of floats in a wrapper of the environment, or leave it out there."
)
def observations_of_dtype_object(s):
    spec = {"name": specs.Array((), object, name="name")}
    environment = testing.FakeEnvironment(observation_spec=spec)
    environments.make_training_environment(environment)


@mistake(
    "`step` of the environment must return MID or LAST in an open episode, with a reward, got FIRST "
    "without one after 0 steps. End the episode with LAST (`dm_env.termination` or `truncation`); the"
    " `step` after that begins the next."
)
def an_environment_that_begins_anew_in_mid_episode(s):
    actor = testing.FakeActor(ACTION)
    runs.evaluate(Restarting(), actor, 1)


@mistake("`num_episodes` must be >= 1, got 0. A return needs a whole episode.")
def an_evaluation_of_no_episode(s):
    runs.evaluate(FLAT, testing.FakeActor(ACTION), 0)


class Restarting(testing.FakeEnvironment):
    def step(self, action):
        super().step(action)
        return self.reset()


# Agents and environments that do not fit.


def check(builder, environment):
    builder.check_spec(specs.make_environment_spec(environment))


@mistake("`action_penalty` must be False with discrete actions, which never leave their bounds, got True.")
def a_penalty_on_discrete_actions_with_mpo(s):
    config = dataclasses.replace(TINY_MPO, action_penalty=True)
    spec = specs.DiscreteArray(5, name="action")
    check(mpo.MPOBuilder(config), testing.FakeEnvironment(action_spec=spec))


@mistake(
    "PPO needs actions with finite bounds, low below high, got Array(2,) float32. Bound them in the "
    "environment's action_spec."
)
def actions_without_bounds_with_ppo(s):
    check(ppo.PPOBuilder(TINY_PPO), testing.FakeEnvironment.continuous())


@mistake(
    "V-MPO needs actions that are one discrete number or one float32 vector, got a nest, {'go': "
    "DiscreteArray(shape=(), dtype=int32, name=go, minimum=0, maximum=1, num_values=2), 'turn': "
    "DiscreteArray(shape=(), dtype=int32, name=turn, minimum=0, maximum=2, num_values=3)}. Mixed and "
    "nested actions must be joined in a wrapper of the environment."
)
def actions_of_two_parts_with_vmpo(s):
    action_spec = {"go": specs.DiscreteArray(2, name="go"), "turn": specs.DiscreteArray(3, name="turn")}
    check(vmpo.VMPOBuilder(vmpo.VMPOConfig()), testing.FakeEnvironment(action_spec=action_spec))


@mistake(
    "PPO needs observations that are numbers, got StringArray() object as `observation`. Turn it into "
    "numbers, or leave it out, in a wrapper of the environment."
)
def observations_that_are_text(s):
    text = specs.StringArray((), name="mission")
    check(ppo.PPOBuilder(TINY_PPO), testing.FakeEnvironment(observation_spec=text))


@mistake(
    "MPO needs observations in float32 or in integers, got Array(2,) float64 as `observation['velocity']`. "
    "Wrap the environment, or each one before `make_vector` joins them: SinglePrecisionWrapper casts "
    "float64."
)
def a_dict_of_observations_in_two_precisions(s):
    dtypes = {"position": np.float32, "velocity": np.float64}
    spec = {name: specs.Array((2,), dtype, name=name) for name, dtype in dtypes.items()}
    check(mpo.MPOBuilder(TINY_MPO), testing.FakeEnvironment(observation_spec=spec))


@mistake(
    "MPO needs observations in float32 or in integers, got Array(3,) float64 as `observation`. Wrap the "
    "environment, or each one before `make_vector` joins them: SinglePrecisionWrapper casts float64."
)
def observations_in_double_precision(s):
    check(mpo.MPOBuilder(TINY_MPO), testing.FakeEnvironment(observation_spec=specs.Array((3,), np.float64)))


@mistake(
    "PPO needs rewards that are one float32 number, got Array() float64. Wrap the environment, or "
    "each one before `make_vector` joins them: SinglePrecisionWrapper casts; "
    "ScalarRewardWrapper sums several rewards with weights."
)
def rewards_in_double_precision(s):
    check(
        ppo.PPOBuilder(TINY_PPO),
        testing.FakeEnvironment(reward_spec=specs.Array((), np.float64, name="reward")),
    )


@mistake(
    "`action_norm/legs/0` must be the name of one number, got several in a nest with this name. Rename one "
    "of them in a wrapper of the environment."
)
def leaves_that_an_observer_would_call_alike(s):
    observer = observers.ActionNorm()
    observer.observe_first(FLAT, FIRST)
    observer.observe(FLAT, step(), {"legs": [ACTION], "legs/0": ACTION})


# Hyperparameters.


@mistake(
    "Learning would never start: `min_replay_size` 1000 is above `max_replay_size` 100. Lower the "
    "first or raise the second."
)
def a_replay_too_small_to_begin(s):
    mpo.MPOConfig(min_replay_size=1_000, max_replay_size=100)


@mistake(
    "Table 'table' could never be sampled: `min_size` 6 is above `max_size` 5. Lower the first or "
    "raise the second."
)
def a_table_too_small_to_be_sampled(s):
    make_store(layouts.TransitionLayout(SPEC), max_size=5, rate_limiter=replay.MinSize(6))


@mistake("`sequence_length` must be >= 1, got 0.")
def sequences_of_no_step(s):
    mpo.MPOConfig(sequence_length=0)


@mistake(
    "`sequence_period` must be <= `sequence_length` 5, got 6: transitions between two sequences would"
    " never be learned from."
)
def sequences_with_gaps_between(s):
    mpo.MPOConfig(sequence_length=5, sequence_period=6)


@mistake(
    "`rollout_steps` must be a multiple of `num_environments` (8), got 100. All environments make the "
    "same number of steps of a rollout."
)
def a_rollout_that_environments_cannot_share(s):
    ppo.PPOConfig(rollout_steps=100, num_environments=8)


@mistake("`minibatch_size` must be <= `rollout_steps` (64), got 128. Lower it, or make longer rollouts.")
def a_minibatch_larger_than_the_rollout(s):
    ppo.PPOConfig(rollout_steps=64, minibatch_size=128)


@mistake("`policy_layer_sizes` must be one or more sizes >= 1, got ().")
def a_network_without_layers(s):
    ppo.PPOConfig(policy_layer_sizes=())


@mistake("`discount` must be in [0, 1], got 99.0.")
def a_discount_above_one(s):
    mpo.MPOConfig(discount=99.0)


@mistake(
    "PPOBuilder must be given a PPOConfig, got MPOConfig. Write PPOBuilder(PPOConfig(...)), or "
    "use the builder that belongs to your config."
)
def the_config_of_another_agent(s):
    ppo.PPOBuilder(mpo.MPOConfig())


@mistake(
    "MPOBuilder must be given a MPOConfig, got dict. Write MPOBuilder(MPOConfig(...)), or use the "
    "builder that belongs to your config."
)
def a_config_as_a_dict(s):
    mpo.MPOBuilder({"discount": 0.9})


@mistake(
    "PPOBuilder must be given a config, got the class PPOConfig. Make an instance: PPOBuilder(PPOConfig())"
)
def the_class_of_a_config(s):
    ppo.PPOBuilder(ppo.PPOConfig)


@mistake("`num_epochs` must be a whole number, got 3.0. Write 3.")
def a_whole_number_as_a_float(s):
    ppo.PPOConfig(num_epochs=3.0)


# Runs.


@mistake("`num_env_steps` must be a whole number, got 1000.0. Write 1000.")
def a_number_of_steps_with_an_exponent(s):
    make_config(ppo.PPOBuilder(TINY_PPO), s.folder, num_env_steps=1e3)


@mistake("`builder` must be an instance, got the class PPOBuilder. Make one with its config: PPOBuilder(...)")
def the_class_of_a_builder(s):
    make_config(ppo.PPOBuilder, s.folder)


@mistake("`builder` must be an AgentBuilder, got PPOConfig. Make one with the config of its agent.")
def a_config_for_a_builder(s):
    make_config(TINY_PPO, s.folder)


@mistake(
    "`environment_factory` must be a function that makes an environment from a seed, got "
    "'CartPole-v1'. Write lambda seed: environments.make_training_environment('CartPole-v1', seed)"
)
def an_id_for_a_factory(s):
    make_config(ppo.PPOBuilder(TINY_PPO), s.folder, environment_factory="CartPole-v1")


@mistake(
    "`environment_factory` must be a function that makes an environment from a seed, got "
    "FakeEnvironment, which cannot be called. Training and evaluation each make their own environments: "
    "write lambda seed: ... around the code that makes yours."
)
def an_environment_for_a_factory(s):
    make_config(ppo.PPOBuilder(TINY_PPO), s.folder, environment_factory=FLAT)


@mistake(
    "`evaluation_environment_factory` must be a function that makes an environment from a seed, "
    "got one that cannot be called with a seed alone (too many positional arguments). Write lambda seed: ... "
    "around it."
)
def a_factory_that_takes_no_seed(s):
    make_config(ppo.PPOBuilder(TINY_PPO), s.folder, evaluation_environment_factory=lambda: FLAT)


@mistake(
    "`environment_factory` must return a dm_env environment, got one of Gymnasium, Unwrapped. Wrap it: "
    "environments.make_training_environment(...) accepts Gymnasium environments."
)
def an_environment_of_gymnasium_as_it_is(s):
    class Unwrapped(gymnasium.Env):
        observation_space = action_space = gymnasium.spaces.Discrete(2)

    config = make_config(ppo.PPOBuilder(TINY_PPO), s.folder, environment_factory=lambda seed: Unwrapped())
    experiments.run_experiment(config)


@mistake(
    "`environment_factory` must return an environment, got NoneType. Return the one that it makes, a "
    "`dm_env.Environment`, a `VectorEnvironment` or a `BatchedEnvironment`."
)
def a_factory_that_forgets_to_return(s):
    config = make_config(ppo.PPOBuilder(TINY_PPO), s.folder, environment_factory=lambda seed: None)
    experiments.run_experiment(config)


@mistake(
    "`num_env_steps` must be >= 1, or 0 with `num_learner_steps` >= 1 for a run that learns from a dataset "
    "alone, got 0 and 0. With environment steps, the agent determines the number of learner steps."
)
def a_run_of_no_step(s):
    experiments.RunOptions(num_env_steps=0)


@mistake("`seed` must be >= 0, got -1.")
def a_negative_seed(s):
    experiments.RunOptions(num_env_steps=1, seed=-1)


@mistake(
    "`device` is 'cuda' but torch 2.13.0+cpu finds no CUDA device. Use 'cpu', or install a CUDA build"
    " of torch."
)
def cuda_where_there_is_none(s):
    s.monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    s.monkeypatch.setattr(torch, "__version__", "2.13.0+cpu")
    experiments.RunOptions(num_env_steps=1, device="cuda")


@mistake("`device` must be like 'cpu', 'cuda', 'cuda:1' or 'auto', got 'gpu'.")
def a_device_that_torch_does_not_know(s):
    experiments.RunOptions(num_env_steps=1, device="gpu")


@mistake(
    "`film_episode` must be given with `evaluation_video`, got None. "
    "minerva_acme.video.make_filmer(environment_id) makes one."
)
def films_without_what_films(s):
    make_config(ppo.PPOBuilder(TINY_PPO), s.folder, evaluation_video=True, tensorboard=True)


@mistake(
    "Videos need 'imageio_ffmpeg', which is not installed: pip install 'minerva-acme[video]', or train "
    "without `evaluation_video`."
)
def films_without_their_packages(s):
    s.monkeypatch.delitem(sys.modules, "minerva_acme.video.movie", raising=False)
    s.monkeypatch.delattr(video, "movie", raising=False)
    s.monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    video.Filmer(lambda seed: FLAT)


@mistake(
    "`environment` must support drawing on this machine, but this failed: no OpenGL here (MUJOCO_GL is not "
    "set). Without a display, MuJoCo needs EGL: apt-get install libegl1 libgl1, then put MUJOCO_GL=egl "
    "before the command. If the error of a Gymnasium environment names a package, install it. "
    "Or train without `evaluation_video`.",
)
def films_on_a_machine_that_cannot_draw(s):
    class Undrawable(testing.FakeEnvironment):
        def control_timestep(self):
            return 0.1

        def render(self):
            raise RuntimeError("no OpenGL here")

    s.monkeypatch.delenv("MUJOCO_GL", raising=False)
    video.Filmer(lambda seed: Undrawable())


@mistake(
    "`replay` is 'reverb' but Reverb is not installed; it has wheels only for Python 3.11 on x86-64 "
    "Linux. Use 'memory', or such an environment."
)
def reverb_where_it_is_not_installed(s):
    s.monkeypatch.setattr(backends, "is_reverb_installed", lambda: False)
    experiments.RunOptions(num_env_steps=1, replay="reverb")


@mistake(
    "`port` must be a free one, got <port>: Address already in use. Stop what listens there, choose "
    "another, or pass None for a free one.",
    replay.ReplayError,
)
def a_port_in_use(s):
    with socket.create_server(("", 0)) as server:
        s.names["<port>"] = str(server.getsockname()[1])
        ports.check_free(server.getsockname()[1])


@mistake(
    "<run> holds another run: agent is 'ppo' there, 'mpo' here. Choose another directory, or resume "
    "that run with `minerva resume <run> --import-code`."
)
def a_folder_with_the_run_of_another_agent(s):
    experiments.run_experiment(make_config(mpo.MPOBuilder(TINY_MPO), s.run, num_env_steps=20))


@mistake(
    "<run> holds another run: policy_layer_sizes is [4] there, [5] here. Choose another directory, or resume "
    "that run with `minerva resume <run> --import-code`."
)
def a_folder_with_a_run_of_other_layer_sizes(s):
    config = dataclasses.replace(TINY_PPO, policy_layer_sizes=(5,))
    experiments.run_experiment(make_config(ppo.PPOBuilder(config), s.run, num_env_steps=20))


@mistake(
    "<run> holds another run: num_environments is 1 there, 2 here. Choose another directory, or resume "
    "that run with `minerva resume <run> --import-code`."
)
def a_folder_with_a_run_of_fewer_environments(s):
    config = dataclasses.replace(TINY_PPO, num_environments=2)
    experiments.run_experiment(make_config(ppo.PPOBuilder(config), s.run, num_env_steps=20))


@mistake(
    "Cannot write the run to <folder>/file/run: Not a directory. Choose another directory for the run, or "
    "check the permissions there.",
    OSError,
)
def a_folder_that_cannot_be_made(s):
    (s.folder / "file").write_text("")
    experiments.run_experiment(make_config(ppo.PPOBuilder(TINY_PPO), s.folder / "file" / "run"))


@mistake(
    "Cannot write checkpoints to <folder>/run/checkpoints: File exists. Choose another directory for the "
    "run, or check the permissions there.",
    OSError,
)
def a_file_in_the_place_of_checkpoints(s):
    (s.folder / "run").mkdir()
    (s.folder / "run" / "checkpoints").write_text("")
    experiments.run_experiment(make_config(ppo.PPOBuilder(TINY_PPO), s.folder / "run"))


@mistake(
    "<folder>/run must be a folder that no other run writes to, but it is in use by <...>. "
    "Stop that run first, or choose another directory."
)
def a_folder_that_another_run_writes_to(s):
    with run_lock.hold(s.folder / "run"):
        experiments.run_experiment(make_config(ppo.PPOBuilder(TINY_PPO), s.folder / "run"))


@mistake(
    "The checkpoint <folder>/000000020 cannot be written: No space left on device, <...> are free there. "
    "Free some space or check the permissions there, then start the run again: it resumes from step 10.",
    OSError,
)
def no_space_left_for_a_checkpoint(s):
    checkpointer = checkpointing.Checkpointer(s.folder)
    checkpointer.save(10, {})

    def full(*unused: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    s.monkeypatch.setattr(os, "fsync", full)
    checkpointer.save(20, {})


@mistake(
    "<run>/checkpoints/000000016 must belong to this agent, config and environment: The weights must have "
    "the names and shapes of this GaussianPolicy, but `torso.0.weight` is missing there, <...>. The "
    "network's code, its config or the environment has changed since training: use the old ones, or train "
    "again."
)
def a_policy_of_another_agent(s):
    runs.load_policy(s.run, mpo.MPOBuilder(TINY_MPO), FLAT)


@mistake(
    "<run>/checkpoints/000000016 must belong to this agent, config and environment: The weights must have "
    "the names and shapes of this ActorCritic, but <...>. The network's code, its config or the environment "
    "has changed since training: use the old ones, or train again."
)
def a_policy_of_other_layer_sizes(s):
    config = dataclasses.replace(TINY_PPO, policy_layer_sizes=(5,))
    runs.load_policy(s.run, ppo.PPOBuilder(config), FLAT)


@mistake(
    "The weights of this Linear must be numpy arrays, got a Tensor for `weight`. A learner's `get_variables` "
    "returns copies: `tensor.numpy(force=True).copy()`.",
    TypeError,
)
def weights_that_a_learner_gives_as_tensors(s):
    networks.set_weights(torch.nn.Linear(2, 1), torch.nn.Linear(2, 1).state_dict())


@mistake("<folder>/none must be a run's folder or a file with a policy, but nothing is there.")
def a_policy_of_a_path_where_nothing_is(s):
    runs.load_policy(s.folder / "none", ppo.PPOBuilder(TINY_PPO), FLAT)


@mistake("<folder> holds no checkpoint yet. Train it first: minerva train ...")
def a_policy_of_a_run_that_saved_nothing(s):
    runs.load_policy(s.folder, ppo.PPOBuilder(TINY_PPO), FLAT)


@mistake(
    "`environment` must support drawing, but its `render` is not implemented. Implement it; for the "
    "`render_mode` 'rgb_array' it must return a uint8 image [height, width, 3]."
)
def a_film_of_an_environment_without_pictures(s):
    class Pictureless(testing.FakeEnvironment):
        def render(self):
            raise NotImplementedError

    recording.check_drawable(Pictureless(), wrappers.render_frame)


@mistake(
    "`environment` must support drawing on this machine, but this failed: an OpenGL platform library has "
    "not been loaded (MUJOCO_GL is not set). Without a display, MuJoCo needs EGL: apt-get install libegl1 "
    "libgl1, then put MUJOCO_GL=egl before the command. If the error of a Gymnasium "
    "environment names a package, install it.",
)
def a_picture_without_a_display(s):
    def render(environment):
        raise RuntimeError("an OpenGL platform library has not been loaded")

    s.monkeypatch.delenv("MUJOCO_GL", raising=False)
    recording.DrawingWrapper(FLAT, render=render, on_frame=lambda frame, so_far: None).reset()


# Adders.


@mistake("No episode is open. Call `add_first` with a FIRST timestep before `add`.")
def a_step_before_the_first(s):
    make_adder().add(ACTION, step())


@mistake("`timestep` must be FIRST, got MID. Begin an episode with what the environment's `reset` returns.")
def an_episode_that_begins_in_its_middle(s):
    make_adder().add_first(step())


@mistake("An episode is still open. Call `add` with its LAST timestep, or `reset` to end it now.")
def an_episode_within_an_episode(s):
    adder = make_adder()
    play(adder)
    play(adder)


@mistake("No episode is open. Call `add_first` with a FIRST timestep before `add`.")
def a_step_after_the_last(s):
    play(make_adder(), (ACTION, step(last=True)), (ACTION, step()))


@mistake("`next_timestep` must be MID or LAST, got FIRST. Pass an episode's first to `add_first`.")
def a_first_step_in_mid_episode(s):
    play(make_adder(), (ACTION, FIRST))


@mistake("`action` must be float32 of shape (2,), got float32 of shape (3,). Make it agree with its spec.")
def an_action_of_the_wrong_shape(s):
    play(make_adder(), (np.zeros(3, np.float32), step()))


@mistake(
    "`action` must be float32 of shape (2,), got float64 of shape (2,). Cast it, or wrap the "
    "environment in SinglePrecisionWrapper."
)
def an_action_of_the_wrong_dtype(s):
    play(make_adder(), (np.zeros(2), step()))


@mistake("`reward` must be finite, got nan. Look for a simulation or a policy that has diverged.")
def a_reward_that_is_not_a_number(s):
    play(make_adder(), (ACTION, step(reward=np.nan)))


@mistake(
    "`reward` must be within ±1e+15, got 1e+39. Clip it or scale it down in a wrapper of the environment."
)
def a_reward_in_double_precision_that_single_cannot_hold(s):
    layout = layouts.TrajectoryLayout(SPEC._replace(rewards=specs.Array((), np.float64)), 2)
    adder = adders.SequenceAdder(client=make_store(layout).client(), table="table", layout=layout, period=1)
    play(adder, (ACTION, step()._replace(reward=np.float64(1e39))))


@mistake(
    "`discount` must be in [0, 1], the bounds of its spec, got 1.5. Correct the environment, or its "
    "`discount_spec`."
)
def a_discount_of_the_environment_above_one(s):
    play(make_adder(), (ACTION, step()._replace(discount=np.float32(1.5))))


@mistake("The adder is closed. Make a new one.")
def a_closed_adder(s):
    adder = make_adder()
    adder.close()
    play(adder)


@mistake(
    "`priority` must be finite and >= 0, got -1.0 for table 'table'. Correct the number or the function."
)
def a_negative_priority(s):
    make_adder(priority=-1.0)


@mistake("`priority` must be finite and >= 0, got nan for table 'table'. Correct the number or the function.")
def a_function_that_returns_no_priority(s):
    play(make_adder(priority=lambda item: float("nan")), (ACTION, step()))


@mistake(
    "`at_end` must return the steps at which sequences start, in ascending order and from 0 to 1 where an "
    "episode has 2 steps, got 2. Correct the function; the steps that fill no sequence are lost."
)
def a_sequence_that_starts_where_the_episode_has_ended(s):
    layout = layouts.TrajectoryLayout(SPEC, 3)
    settings = dict(client=make_store(layout).client(), table="table", layout=layout, period=1)
    adder = adders.SequenceAdder(**settings, at_end=lambda episode: [episode.num_steps])
    play(adder, (ACTION, step()), (ACTION, step(last=True)))


# Replay.


@mistake(
    "`observation['eye']['left']` and `observation['eye/left']` must not share a column of replay, got "
    "'observation/eye/left' for both. Rename one of them in a wrapper of the environment."
)
def images_whose_names_read_alike(s):
    image = specs.Array((8, 8, 3), np.uint8)
    layouts.TransitionLayout(SPEC._replace(observations={"eye": {"left": image}, "eye/left": image}))


@mistake("There is no table 'tabel' in memory. Its tables are 'table'.", replay.ReplayError)
def a_table_that_there_is_not(s):
    make_store(layouts.TransitionLayout(SPEC)).client().sampler("tabel")


@mistake("`priorities` must be finite and >= 0, one for each of 1 keys, got [-0.5].")
def negative_priorities_for_sampled_items(s):
    client = make_store(layouts.TransitionLayout(SPEC)).client()
    client.update_priorities("table", np.array([1], np.uint64), np.array([-0.5]))


@mistake("The dataset is closed. Make a new one.", replay.ReplayError)
def a_closed_dataset(s):
    layout = layouts.TransitionLayout(SPEC)
    batches = dataset.Dataset(make_store(layout).client().sampler("table"), layout.unpack, batch_size=4)
    batches.close()
    next(batches)


# Learners.


@mistake("Unknown variables ['actor']; there are ['policy'].", KeyError)
def variables_that_there_are_not(s):
    class Learner(learners.ModuleLearner):
        def step(self):
            raise NotImplementedError

    Learner(
        modules={"policy": torch.nn.Linear(1, 1)},
        variables=["policy"],
        updates=learners.Updates({}, modules=[], max_skipped_batches=0),
        counter=counting.Counter(),
        logger=testing.FakeLogger(),
        generator=torch.Generator(),
    ).get_variables(["actor"])


@mistake(
    "`dataset` must give batches of Trajectory, got Transition. Write and unpack them with a "
    "TrajectoryLayout.",
    TypeError,
)
def transitions_for_a_learner_of_sequences(s):
    learn_from_transitions(mpo.MPOBuilder(TINY_MPO))


@mistake(
    "`dataset` must give batches of Rollout, got Transition. Write and unpack them with a RolloutLayout.",
    TypeError,
)
def transitions_for_ppo(s):
    learn_from_transitions(ppo.PPOBuilder(TINY_PPO))


@mistake(
    "`dataset` must give batches of Rollout, got Transition. Write and unpack them with a RolloutLayout.",
    TypeError,
)
def transitions_for_vmpo(s):
    learn_from_transitions(vmpo.VMPOBuilder(vmpo.VMPOConfig()))


def learn_from_transitions(builder):
    transition = types.Transition(*(torch.zeros(2) for _ in types.Transition._fields[:5]))
    builder.make_learner(
        builders.LearnerParts(
            networks=builder.make_networks(SPEC, torch.Generator()),
            dataset=testing.RepeatedBatch(transition),
            spec=SPEC,
            counter=counting.Counter(),
            logger=testing.FakeLogger(),
            generator=torch.Generator(),
            device=torch.device("cpu"),
        )
    ).step()


# Imports.


@mistake(
    "`agents` is installed as `minerva_acme.agents`: write `from minerva_acme.agents import ...`.",
    ImportError,
)
def agents_without_the_packages_name(s):
    s.monkeypatch.syspath_prepend(str(REPOSITORY))
    importlib.import_module("agents")


@mistake(
    "`adders` is installed as `minerva_acme.adders`: write `from minerva_acme.adders import ...`.",
    ImportError,
)
def adders_without_the_packages_name(s):
    s.monkeypatch.syspath_prepend(str(REPOSITORY))
    importlib.import_module("adders")


# The command line: arguments, standard error, and the exit status where it is not 2.

COMMANDS: dict[str, tuple[Any, ...]] = {
    "a command misspelt": (
        "trian mpo --env CartPole-v1",
        "There is no command 'trian'; there are demo, train, sweep, resume, eval, video, dataset, plot, "
        "report, collect, export, publish, verify, list, bench, check-env, init, doctor, completion. Did you "
        "mean 'train'?",
    ),
    "an agent misspelt": (
        "train mppo --env CartPole-v1",
        f"There is no agent 'mppo'; there are {', '.join(registry.AGENTS)}. Did you mean 'ppo'? For your "
        "own: --agent my_package.my_module:MyBuilder",
    ),
    "a preset misspelt": (
        "train mpo --env CartPole-v1 --preset contrl",
        "There is no preset 'contrl'; there are default, control, memory, modern, offline, simba, demo, "
        "dmpo, dmpo_mixture, two_hot, minerva, task. Did you mean 'control'?",
    ),
    "a flag misspelt": (
        "train ppo --env CartPole-v1 --num-env-step 10",
        "`minerva train ppo` has no flag --num-env-step. Did you mean '--num-env-steps' or "
        "'--num-learner-steps' or '--num-learners'?",
    ),
    "a flag before the command": (
        "--device cpu train ppo",
        "`minerva` has no flag --device before a command. For all commands and flags: minerva --help",
    ),
    "a count in words": (
        "train ppo --env CartPole-v1 --num-env-steps many",
        "`--num-env-steps` must be a whole number, got 'many'.",
    ),
    "a count with a fraction": (
        "train ppo --env CartPole-v1 --num-env-steps 1.5e0",
        "`--num-env-steps` must be a whole number, got '1.5e0'.",
    ),
    "a count that may be left out": (
        "resume <young> --num-env-steps 10k",
        "`--num-env-steps` must be a whole number, got '10k'.",
    ),
    "one of several sizes": (
        "train ppo --env CartPole-v1 --num-env-steps 10 --policy-layer-sizes 64 6o",
        "`--policy-layer-sizes` must be a whole number, got '6o'.",
    ),
    "a number in words": (
        "train ppo --env CartPole-v1 --num-env-steps 10 --discount high",
        "`--discount` must be a number, got 'high'.",
    ),
    "a place for logs misspelt": (
        "train ppo --env CartPole-v1 --num-env-steps 10 --log csv,tensorbord",
        "`--log` must be one of csv, tensorboard, wandb, got 'tensorbord'. Did you mean 'tensorboard'?",
    ),
    "a place for a resumed run's logs": (
        "resume <young> --log disk",
        "`--log` must be one of csv, tensorboard, wandb, got 'disk'.",
    ),
    "a format of films that there is not": (
        "video <young> --format avi",
        "`--format` must be one of mp4, gif, got 'avi'.",
    ),
    "a run of no step": (
        "train ppo --env CartPole-v1 --num-env-steps 0",
        "`num_env_steps` must be >= 1, or 0 with `num_learner_steps` >= 1 for a run that learns from a "
        "dataset alone, got 0 and 0. With environment steps, the agent determines the number of learner "
        "steps.",
    ),
    "a device that torch does not know": (
        "train ppo --env CartPole-v1 --num-env-steps 10 --device gpu",
        "`device` must be like 'cpu', 'cuda', 'cuda:1' or 'auto', got 'gpu'.",
    ),
    "a hyperparameter out of range": (
        "train ppo --env CartPole-v1 --num-env-steps 10 --discount 99",
        "`discount` must be in [0, 1], got 99.0.",
    ),
    "hyperparameters that do not fit together": (
        "train mpo --env Pendulum-v1 --num-env-steps 10 --min-replay-size 10 --max-replay-size 5",
        "Learning would never start: `min_replay_size` 10 is above `max_replay_size` 5. Lower the first "
        "or raise the second.",
    ),
    "films with nothing to show them": (
        "train ppo --env CartPole-v1 --num-env-steps 10 --log csv --evaluation-video",
        "`evaluation_video` must be False if both `tensorboard` and `wandb` are False, got True. Enable "
        "one of them, or leave `evaluation_video` out.",
    ),
    "no agent": (
        "train",
        f"`minerva train` must have an agent, got none; there are {', '.join(registry.AGENTS)}. To choose "
        "one: minerva train --help",
    ),
    "no agent for a sweep, but a flag misspelt": (
        "sweep --sedes 3",
        f"`minerva sweep` must have an agent, got none; there are {', '.join(registry.AGENTS)}. To choose "
        "one: minerva train --help",
    ),
    "a flag of Stable-Baselines3's": (
        "train ppo --env CartPole-v1 --total-timesteps 1e5",
        "`minerva train ppo` has no flag --total-timesteps. Here it is --num-env-steps.",
    ),
    "a flag of CleanRL's": (
        "train sac --env-id Pendulum-v1",
        "`minerva train sac` has no flag --env-id. Here it is --env.",
    ),
    "a flag of theirs that has a shorter name here": (
        "train ppo --env CartPole-v1 --n-envs 8",
        "`minerva train ppo` has no flag --n-envs. Here it is --num-envs.",
    ),
    "a flag of theirs that this agent lacks": (
        "train ppo --env CartPole-v1 --learning-starts 1000",
        "`minerva train ppo` has no flag --learning-starts. Here it is --min-replay-size, which this command "
        "does not have. Leave it out.",
    ),
    "a flag of theirs that nothing here needs": (
        "train ppo --env CartPole-v1 --save-model",
        "`minerva train ppo` has no flag --save-model. Leave it out: checkpoints are saved. To a single "
        "file: minerva export RUN",
    ),
    "a flag with one dash": (
        "train ppo --env CartPole-v1 -seed 1",
        "`minerva train ppo` has no flag -seed. Did you mean '--seed'?",
    ),
    "a flag of one letter": (
        "train ppo --env CartPole-v1 -x",
        "`minerva train ppo` has no flag -x. For all flags: minerva train ppo --help",
    ),
    "a flag of theirs in one letter": (
        "train ppo --env CartPole-v1 -n 50000",
        "`minerva train ppo` has no flag -n. Here it is --num-env-steps.",
    ),
    "a command of theirs": (
        "enjoy runs/a",
        f"There is no command 'enjoy'; there are {', '.join(commands.COMMANDS)}. Did you mean 'eval'?",
    ),
    "an agent of theirs": (
        "train a2c --env CartPole-v1",
        f"There is no agent 'a2c'; there are {', '.join(registry.AGENTS)}. Did you mean 'ppo'? For your "
        "own: --agent my_package.my_module:MyBuilder",
    ),
    "a flag of which there are several here": (
        "train mpo --env Pendulum-v1 --learning-rate 1e-3",
        "`minerva train mpo` has no flag --learning-rate. Here it is --policy-learning-rate or "
        "--critic-learning-rate.",
    ),
    "a flag that other libraries count otherwise": (
        "train ppo --env CartPole-v1 --n-steps 128",
        "`minerva train ppo` has no flag --n-steps. Here it is --rollout-steps (of all environments "
        "together).",
    ),
    "a short word for a list": (
        "list envs",
        "There is no list of 'envs'; there are agents, environments, presets, tasks, runs. Did you mean "
        "'environments'? To search for a word: minerva list environments envs",
    ),
    "a game of Atari": (
        "train dqn --env ALE/Pong-v5",
        "'ALE/Pong-v5' is an Atari game of the package ale-py, whose module must stand before the id: "
        "pip install ale-py, then ale_py:ALE/Pong-v5",
        1,
    ),
    "no environment": (
        "train ppo --num-env-steps 10",
        "`minerva train ppo` must have an environment, got none. For example: --env CartPole-v1, or your "
        "own: --env my_module:MyEnvironment. Those that are here: minerva list environments",
    ),
    "no environment of a sweep": (
        "sweep ppo --seeds 1",
        "`minerva sweep` must have an environment, got none. For example: --env CartPole-v1, or your "
        "own: --env my_module:MyEnvironment. Those that are here: minerva list environments",
    ),
    "an environment without its flag": (
        "train ppo Pendulum-v1",
        "`minerva train ppo` must have an environment, got 'Pendulum-v1' without its flag: --env Pendulum-v1",
    ),
    "an environment in place of the agent": (
        "train dm_control/cheetah/run",
        "`minerva train` must begin with an agent, got the environment 'dm_control/cheetah/run'. For "
        "example: minerva train ppo --env dm_control/cheetah/run",
    ),
    "an id without its version": (
        "train ppo --env CartPole --num-env-steps 10",
        "`environment_id` must be dm_control/<domain>/<task> or an id of Gymnasium's, got 'CartPole'. Did "
        "you mean CartPole-v1?",
    ),
    "a class with a dot": (
        "train ppo --env my_robot.Robot --num-env-steps 10",
        "`environment_id` must be dm_control/<domain>/<task> or an id of Gymnasium's, got "
        "'my_robot.Robot'. A class or function of yours has a colon before its name: my_robot:Robot",
    ),
    "an argument without a value": (
        "check-env CartPole-v1 --env-kwargs gravity",
        "`--env-kwargs` must be KEY=VALUE with an argument of the environment, got 'gravity'. For example: "
        "--env-kwargs gravity=9.81 size=small",
    ),
    "the seed among the arguments": (
        "check-env CartPole-v1 --env-kwargs seed=3",
        "`--env-kwargs` must not set the seed, got 'seed=3'. Use the command's own flag.",
    ),
    "a module that there is not": (
        "train ppo --env gym:CartPole-v1",
        "There is no module 'gym', which `gym:CartPole-v1` names. Gymnasium has CartPole-v1 without a module "
        "before it.",
    ),
    "a file of settings that there is not": (
        "train ppo --config <folder>/none.toml",
        "`config` must be a TOML file or the run.json of a run, got <folder>/none.toml: No such file or "
        "directory.",
    ),
    "a flag of another agent": (
        "train mpo --env Pendulum-v1 --gae-lambda 0.9",
        "`minerva train mpo` has no flag --gae-lambda. Did you mean '--retrace-lambda'?",
    ),
    "an environment misspelt": (
        "train ppo --env CartPol-v1 --num-env-steps 10",
        "`environment_id` must be dm_control/<domain>/<task> or an id of Gymnasium's, got "
        "'CartPol-v1'. Did you mean CartPole-v1, CartPole-v0, Acrobot-v1?",
    ),
    "a resumed folder without a run": (
        "resume <folder>",
        "There is no run in <folder>: run.json is missing. Give the folder of a trained run.",
    ),
    "an evaluated folder without a run": (
        "eval <folder>",
        "There is no run in <folder>: run.json is missing. Give the folder of a trained run.",
    ),
    "a published run without its owner": (
        "publish <young> --to me",
        "`--to` must be OWNER/NAME on the hub, got 'me'.",
    ),
    "an evaluated run that saved nothing": (
        "eval <young>",
        "<young> holds no checkpoint yet. Train it first: minerva train ...",
    ),
    "no episodes": ("eval <young> --episodes 0", "`episodes` must be >= 1, got 0."),
    "a film of a run that saved nothing": (
        "video <young>",
        "<young> holds no checkpoint yet. Train it first: minerva train ...",
    ),
    "a plot of a folder without runs": (
        "plot <folder>",
        "There is no run in <folder>: run.json is missing. Give the folder of a trained run.",
    ),
    "a plot of a run without evaluations": (
        "plot <young>",
        "<young> has no logs yet. Wait for its first evaluation, or train it.",
    ),
    "a plot of another metric": (
        "plot <judged> --metric evaluator/episode_retrun",
        "<judged> has no metric 'evaluator/episode_retrun'. Did you mean evaluator/episode_return?",
    ),
    "the folder of another run": (
        "train ppo --env CartPole-v1 --seed 1 --num-env-steps 10 --directory <young>",
        "<young> holds another run: seed is 0 there, 1 here. Choose another directory, or resume that "
        "run with `minerva resume <young>`.",
    ),
    "a folder below a file": (
        "train ppo --env CartPole-v1 --num-env-steps 10 --directory <young>/run.json/a",
        "Cannot write the run to <young>/run.json/a: Not a directory. Choose another directory for the "
        "run, or check the permissions there.",
        1,
    ),
}


@pytest.fixture
def folders(tmp_path):
    """Folders by the names in the commands: an empty one, a run that has only begun, one evaluated once."""
    paths = {"<folder>": tmp_path / "empty", "<young>": tmp_path / "young", "<judged>": tmp_path / "judged"}
    paths["<folder>"].mkdir()
    for path in (paths["<young>"], paths["<judged>"]):
        run_folder.RunDescription(
            agent="ppo",
            environment="CartPole-v1",
            seed=0,
            hyperparameters=dataclasses.asdict(ppo.PPOConfig()),
        ).write(path)
    (paths["<judged>"] / "evaluator.csv").write_text("actor_steps,episode_return\n0,20.0\n10,30.0\n")
    return paths


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_command_says_on_standard_error_what_to_type_instead(name, folders, capsys):
    command, message, *status = COMMANDS[name]
    for mark, path in folders.items():
        command = command.replace(mark, str(path))
    assert [main(command.split())] == (status or [2])
    error = capsys.readouterr().err
    for mark, path in folders.items():
        error = error.replace(str(path), mark)
    assert error == f"minerva: {message}\n"


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.promise("Errors")
def test_a_mistake_is_answered_with_what_must_be_what_was_found_and_the_way_out(
    name, monkeypatch, tmp_path, run
):
    error, message, make_mistake = MISTAKES[name]
    with pytest.raises(error) as raised:
        make_mistake(surroundings := Surroundings(monkeypatch, tmp_path, run))
    # The message alone: a KeyError's own text is in quotes.
    text = str(raised.value.args[0] if isinstance(raised.value, KeyError) else raised.value)
    for name, found in {"<run>": str(run), "<folder>": str(tmp_path), **surroundings.names}.items():
        text = text.replace(found, name)
    before, _, after = message.partition("<...>")
    assert text.startswith(before)
    assert text.endswith(after)
    assert "<...>" in message or text == message


# What the parser itself says: a part of it.
PARSED = {
    "train ppo --env --num-env-steps 10": "Missing value for argument '--env'",
    "train ppo more --env CartPole-v1 --num-env-steps 10": "Unrecognized options: more",
    "train ppo --env CartPole-v1 --num-env-steps 10 --checkpoint-replay yes": "Unrecognized options: yes",
    "resume one two": "Unrecognized options: two",
    "eval one --explore yes": "Unrecognized options: yes",
    "video one --camera": "Missing value for argument '--camera'",
    "plot one --aggregate yes": "Unrecognized options: yes",
    "list agents mpo more": "Unrecognized options: more",
    "bench --seconds": "Missing value for argument '--seconds'",
    "doctor here": "Unrecognized options: here",
}


@pytest.mark.parametrize("command", PARSED)
def test_what_is_missing_or_too_much_is_told_once_and_nothing_of_the_parsers_insides(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(command.split())
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.count(PARSED[command]) == 1
    named = {"train": "train ppo"}.get(command.split()[0], command.split()[0])
    assert f"minerva {named} --help" in error
    for inside in ("tyro", "dummy", "Any", "NoneType", "class"):
        assert inside not in error


def test_the_tables_hold_what_people_get_wrong():
    assert len(MISTAKES) >= 50
    assert len(COMMANDS) >= 15
    assert not [name for name, (_, message, _) in MISTAKES.items() if message[-1] not in ".?)"]
