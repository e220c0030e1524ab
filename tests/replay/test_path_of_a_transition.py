"""How many files one has to open to follow a transition from the environment to the learner's batch."""

import contextlib
import pathlib
import sys

import numpy as np
import pytest
import torch

from minerva_acme import environments, experiments, replay, specs, testing
from minerva_acme.agents import mpo

MAX_FILES = 12
MAX_FILES_IN_TRAINING = 15


class Trace:
    """Notes the project's files whose functions run while it is on, in the order of their first call."""

    def __init__(self, files) -> None:
        self.files = files
        self.crossed: dict[pathlib.Path, list[str]] = {}

    def start(self) -> None:
        caller = sys._getframe(1)
        while caller is not None:  # They have the transition in their hands already.
            code = caller.f_code
            self.note(code.co_filename, code.co_name)
            if code.co_name == "_step" and code.co_filename.endswith("environments/loop.py"):
                break  # What calls the loop is given the results of episodes.
            caller = caller.f_back
        self.resume()

    def resume(self) -> None:
        sys.setprofile(self.profile)

    def stop(self) -> None:
        sys.setprofile(None)

    def profile(self, frame, event, argument) -> None:
        if event == "call":
            self.note(frame.f_code.co_filename, frame.f_code.co_name)

    def note(self, filename: str, function: str) -> None:
        path = pathlib.Path(filename)
        if path in self.files:
            functions = self.crossed.setdefault(path, [])
            if function not in functions:
                functions.append(function)


@pytest.fixture
def trace(source_files):
    # Under coverage or a debugger somebody else's profiler comes back afterwards.
    before = sys.getprofile()
    trace = Trace({path.resolve() for path in source_files.values()})
    yield trace
    sys.setprofile(before)


def test_a_transition_crosses_few_files_on_its_way_to_the_learner(trace, monkeypatch):
    """From the return of `environment.step` to that of `observe`, and within `next(dataset)`.

    Between the two the transition lies in the store. The policy chose the action before, and the learner
    takes the batch after.
    """
    config = mpo.MPOConfig(
        sequence_length=2,
        batch_size=1,
        min_replay_size=1,
        policy_layer_sizes=(4,),
        critic_layer_sizes=(4,),
    )
    builder = mpo.MPOBuilder(config)
    environment = testing.FakeEnvironment()
    spec = specs.make_environment_spec(environment)
    generator = torch.Generator().manual_seed(0)
    policy = builder.make_policy(builder.make_networks(spec, generator), spec, generator)
    tables = builder.make_replay_tables(spec)
    with replay.make_server(tables, "memory", seed=0) as server, server.client() as client:
        adder = builder.make_adder(client, spec)
        actor = builder.make_actor(policy, adder=adder)
        dataset = builder.make_dataset(client, spec, torch.device("cpu"))
        environment_step, actor_observe = environment.step, actor.observe

        def step(action):
            timestep = environment_step(action)
            trace.start()
            return timestep

        def observe(action, next_timestep):
            actor_observe(action, next_timestep)
            trace.stop()

        monkeypatch.setattr(environment, "step", step)
        monkeypatch.setattr(actor, "observe", observe)
        loop = environments.EnvironmentLoop(environment=environment, actor=actor)
        while not adder.num_inserted:
            loop.step()
        trace.resume()
        batch = next(dataset)
        trace.stop()

    newest = environment.timesteps[-1]
    np.testing.assert_array_equal(batch.data.observation[0, -1], newest.observation)
    assert batch.data.reward[0, -1] == newest.reward
    crossed = [f"{path}: {', '.join(functions)}" for path, functions in trace.crossed.items()]
    assert len(crossed) <= MAX_FILES, f"{len(crossed)} files:\n" + "\n".join(crossed)
    assert len(crossed) > 5, "The trace must have been on, got only:\n" + "\n".join(crossed)


def make_environment(kind, seed):
    """Makes an environment that needs all of the usual wrappers in training."""
    if kind == "gymnasium":
        return environments.GymnasiumEnvironment("Pendulum-v1", seed=seed)
    wide = {"b": specs.Array((2,), np.float64), "a": specs.BoundedArray((), np.float64, 0, 9)}
    actions = specs.BoundedArray((1,), np.float64, -2.0, 3.0)
    return testing.FakeEnvironment(observation_spec=wide, action_spec=actions, episode_length=4)


@pytest.mark.parametrize("kind", ["gymnasium", "dict"])
def test_the_whole_way_in_training_crosses_few_files(trace, tmp_path, kind):
    """From the return of the environment's own `step` through the wrappers that training puts around it, the
    actor, the adder and the store to the batch that the learner is given, in all steps of an experiment.
    """

    def make_training_environment(seed):
        environment = make_environment(kind, seed)
        environment_step = environment.step

        def step(action):
            timestep = environment_step(action)
            if not timestep.first():
                trace.start()
            return timestep

        environment.step = step
        return environments.make_training_environment(environment)

    class Traced(mpo.MPOBuilder):
        def make_actor(self, policy, variable_source=None, adder=None):
            actor = super().make_actor(policy, variable_source, adder)
            actor_observe = actor.observe

            def observe(action, next_timestep):
                actor_observe(action, next_timestep)
                trace.stop()

            actor.observe = observe
            return actor

        def make_dataset(self, client, spec, device):
            with contextlib.closing(super().make_dataset(client, spec, device)) as dataset:
                while True:
                    trace.resume()
                    batch = next(dataset)
                    trace.stop()
                    yield batch

    config = mpo.MPOConfig(
        sequence_length=2,
        batch_size=4,
        min_replay_size=4,
        samples_per_insert=2.0,
        policy_layer_sizes=(4,),
        critic_layer_sizes=(4,),
    )
    result = experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=Traced(config),
            environment_factory=make_training_environment,
            num_env_steps=20,
            evaluation_episodes=0,
            directory=str(tmp_path),
            replay="memory",
            tensorboard=False,
        )
    )
    assert result.learner_steps > 0
    crossed = [f"{path}: {', '.join(functions)}" for path, functions in trace.crossed.items()]
    assert len(crossed) <= MAX_FILES_IN_TRAINING, f"{len(crossed)} files:\n" + "\n".join(crossed)
    names = {path.name for path in trace.crossed}
    assert {"loop.py", "spec_check.py", "specs.py", "packing.py", "table.py", "dataset.py"} <= names
