import multiprocessing
import os
import sys
import traceback

import pytest

from minerva_acme import environments, experiments, wrappers
from minerva_acme.agents import ppo
from minerva_acme.replay import base as replay
from minerva_acme.runs import checkpointing
from minerva_acme.wrappers import calls
from tests.experiments import test_run

TWO = ppo.PPOConfig(
    policy_layer_sizes=(8,), value_layer_sizes=(8,), num_environments=2, rollout_steps=20, minibatch_size=10
)


class Breaking(wrappers.EnvironmentWrapper):
    """A pendulum whose joint breaks."""

    def __init__(self, seed, at):
        super().__init__(test_run.make_pendulum(seed))
        self._left = at

    def step(self, action):
        if self._left == 0:
            raise ValueError("a joint broke")
        self._left -= 1
        return super().step(action)


def break_at(*steps):
    """A factory of environments; the first ones break at these of their steps."""
    steps = list(steps)

    def make(seed):
        return Breaking(seed, steps.pop(0)) if steps else test_run.make_pendulum(seed)

    return make


def make_config(folder, **overrides):
    return test_run.make_config(folder, **{"num_env_steps": 80, "replay": "memory", **overrides})


def make_two(folder, **overrides):
    return make_config(folder, **{"builder": ppo.PPOBuilder(TWO), **overrides})


def checkpoint(folder):
    return checkpointing.latest(folder / "checkpoints")


def fail(error):
    def do(*unused, **named):
        raise error

    return do


@pytest.mark.promise("If an environment, observer, evaluation or callback raises, the")
def test_an_error_of_the_environment_saves_the_steps_before_it_and_surfaces_as_it_is(tmp_path, caplog):
    with pytest.raises(ValueError, match="^a joint broke$") as raised:
        experiments.run_experiment(make_config(tmp_path, environment_factory=break_at(30)))
    assert traceback.extract_tb(raised.value.__traceback__)[-1].name == "step"  # of the environment
    state = checkpointing.load_state(checkpoint(tmp_path))
    assert checkpoint(tmp_path).name == "000000030"
    # The open episode ends there; every transition begins one item.
    assert (state["counter"]["actor_steps"], state["inserted"]) == (30, 30)
    assert "ValueError after 30 steps, and the run is saved" in caplog.text
    assert f"the run resumes from {checkpoint(tmp_path)}." in caplog.text
    resumed = make_config(tmp_path, num_env_steps=50)  # one more episode
    result = experiments.run_experiment(resumed)
    assert (result.env_steps, result.learner_steps) == (50, resumed.builder.learner_steps_due(50))


class Exiting(Breaking):
    """A pendulum whose simulator exits, as if all was well."""

    def step(self, action):
        if self._left == 0:
            sys.exit(0)
        return super().step(action)


@pytest.mark.parametrize("wrap", [lambda environment: environment, wrappers.SpecCheckWrapper])
def test_an_environment_that_exits_is_an_error_and_the_steps_before_it_are_saved(tmp_path, caplog, wrap):
    def make(seed):
        return wrap(Exiting(seed, 30 if not (tmp_path / "run.json").exists() else -1))

    with pytest.raises(calls.EnvironmentExit, match=r"`step` of \w+ called sys\.exit\(0\)") as raised:
        experiments.run_experiment(make_config(tmp_path, environment_factory=make))
    exited = raised.value.__cause__
    assert isinstance(exited, SystemExit)
    assert traceback.extract_tb(exited.__traceback__)[-1].name == "step"  # of the environment
    assert checkpoint(tmp_path).name == "000000030"
    assert "EnvironmentExit after 30 steps, and the run is saved" in caplog.text


def test_one_of_several_environments_that_exits_is_an_error_and_the_run_is_saved(tmp_path):
    def make(seed):
        return Exiting(seed, 15 if not (tmp_path / "run.json").exists() else -1)

    with pytest.raises(calls.EnvironmentExit):
        experiments.run_experiment(make_two(tmp_path, environment_factory=make))
    assert checkpoint(tmp_path).name == "000000030"


def test_an_exit_in_an_evaluation_is_an_error_and_the_training_is_saved(tmp_path):
    made = []

    def make(seed):
        made.append(seed)  # to train in, for random actions, before training, and for each evaluation
        return Exiting(seed, 5 if len(made) == 4 else -1)

    config = make_config(tmp_path, evaluation_period=20, environment_factory=make)
    with pytest.raises(calls.EnvironmentExit):
        experiments.run_experiment(config)
    assert checkpoint(tmp_path).name == "000000020"


@pytest.mark.parametrize("at", ["callback", "learner"])
def test_what_exits_elsewhere_ends_the_program_and_a_whole_run_is_saved(tmp_path, monkeypatch, at):
    def exits(progress):
        if at == "callback" and progress.env_steps == 30:
            sys.exit(3)

    config = make_config(tmp_path)
    if at == "learner":
        make_learner = config.builder.make_learner

        def make(parts):
            learner = make_learner(parts)
            learner.step = lambda: sys.exit(3)
            return learner

        monkeypatch.setattr(config.builder, "make_learner", make)
    with pytest.raises(SystemExit) as raised:
        experiments.run_experiment(config, exits)
    assert raised.value.code == 3
    found = checkpoint(tmp_path)
    assert found is None if at == "learner" else found.name == "000000030"


def test_an_error_of_one_of_several_environments_saves_what_all_have_made(tmp_path):
    with pytest.raises(ValueError, match="^a joint broke$"):
        experiments.run_experiment(make_two(tmp_path, environment_factory=break_at(1000, 15)))
    assert checkpoint(tmp_path).name == "000000030"
    result = experiments.run_experiment(make_two(tmp_path))
    assert (result.env_steps, result.learner_steps) == (80, 4)


@pytest.mark.usefixtures("fork_server")
@pytest.mark.parametrize(("exits", "message"), [(False, "a joint broke"), (True, r"called sys\.exit\(0\)")])
def test_an_error_in_an_environments_process_saves_all_but_its_randomness(tmp_path, caplog, exits, message):
    def make(seed):  # pickled whole: the processes do not import this module, and so not torch
        environment = environments.make_training_environment("Pendulum-v1", seed=seed)
        step, made = environment.step, []

        def breaking_step(action):
            made.append(action)
            if len(made) > 15 and multiprocessing.parent_process() is not None:
                raise SystemExit(0) if exits else ValueError("a joint broke")
            return step(action)

        environment.step = breaking_step
        return wrappers.StepLimitWrapper(environment, max_steps=20)

    config = make_two(tmp_path, environment_factory=make, environment_processes=True)
    with pytest.raises(environments.EnvironmentWorkerError, match=message):
        experiments.run_experiment(config)
    assert checkpoint(tmp_path).name == "000000030"
    assert checkpointing.load_state(checkpoint(tmp_path))["environments"] is None
    assert "random states of the environments are not saved; they will start from their seeds" in caplog.text


def test_an_observation_that_replay_refuses_saves_the_steps_before_it(tmp_path):
    def make(seed):
        environment = test_run.make_pendulum(seed)
        step, made = environment.step, []

        def poisoned(action):
            made.append(step(action))
            return made[-1]._replace(
                observation=made[-1].observation * float("nan" if len(made) == 15 else 1)
            )

        environment.step = poisoned
        return environment

    factories = [test_run.make_pendulum, make]
    config = make_two(
        tmp_path, environment_factory=lambda seed: (factories or [test_run.make_pendulum]).pop(0)(seed)
    )
    with pytest.raises(ValueError, match="observation"):
        experiments.run_experiment(config)
    # The first environment has made its 15th step, the second has not.
    state = checkpointing.load_state(checkpoint(tmp_path))
    assert state["counter"]["actor_steps"] == 29
    assert experiments.run_experiment(make_two(tmp_path)).learner_steps == 4


def test_an_error_of_an_evaluation_saves_the_training_and_it_is_made_again(tmp_path):
    straight = experiments.run_experiment(make_config(tmp_path / "straight", evaluation_period=20))
    # Environments are made to train in, for random actions, before training, and for each evaluation.
    broken = make_config(
        tmp_path / "broken", evaluation_period=20, environment_factory=break_at(-1, -1, -1, -1, 5)
    )
    with pytest.raises(ValueError, match="^a joint broke$"):
        experiments.run_experiment(broken)
    assert checkpoint(tmp_path / "broken").name == "000000040"
    resumed = experiments.run_experiment(make_config(tmp_path / "broken", evaluation_period=20))
    steps = {
        name: [row["actor_steps"] for row in test_run.rows(tmp_path / name, "evaluator")]
        for name in ("straight", "broken")
    }
    assert steps["straight"] == steps["broken"] == ["0", "20", "40", "60", "80"]
    assert resumed.before == straight.before


@pytest.mark.promise("After an error in a learner step or in replay")
def test_an_error_in_a_learner_step_saves_nothing_and_names_what_is_left(tmp_path, caplog, monkeypatch):
    config, made = make_config(tmp_path, checkpoint_period=40), []
    make_learner = config.builder.make_learner

    def make(parts):
        learner = make_learner(parts)
        step = learner.step

        def diverge():
            step()
            made.append(parts.counter.get_counts()["actor_steps"])
            if made[-1] > 60:
                raise FloatingPointError("diverged")

        learner.step = diverge
        return learner

    monkeypatch.setattr(config.builder, "make_learner", make)
    with pytest.raises(FloatingPointError, match="^diverged$"):
        experiments.run_experiment(config)
    assert checkpoint(tmp_path).name == "000000040"
    assert f"FloatingPointError after {made[-1]} steps, in the middle of learning" in caplog.text
    assert f"the run resumes from {tmp_path}/checkpoints/000000040." in caplog.text


def test_an_error_of_the_replay_saves_nothing(tmp_path, caplog):
    def on_progress(progress):
        if progress.env_steps == 30:
            raise replay.ReplayError("the server is gone")

    with pytest.raises(replay.ReplayError, match="^the server is gone$"):
        experiments.run_experiment(make_config(tmp_path), on_progress)
    assert checkpoint(tmp_path) is None
    assert "so nothing is saved; there is no checkpoint." in caplog.text


def test_with_nothing_new_nothing_is_saved(tmp_path, caplog):
    with pytest.raises(ValueError, match="^a joint broke$"):
        experiments.run_experiment(make_config(tmp_path, environment_factory=break_at(0)))
    assert checkpoint(tmp_path) is None
    assert "with nothing new to save; there is no checkpoint" in caplog.text


def test_an_error_in_saving_does_not_hide_the_one_before(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(checkpointing.Checkpointer, "save", fail(OSError("no space left")))
    with pytest.raises(ValueError, match="^a joint broke$"):
        experiments.run_experiment(make_config(tmp_path, environment_factory=break_at(30)))
    assert "and saving failed too: no space left; there is no checkpoint." in caplog.text


def test_a_checkpoint_that_cannot_be_written_is_not_tried_again(tmp_path, monkeypatch):
    tries = []

    def save(*unused, **named):
        tries.append(1)
        raise OSError("no space left")

    monkeypatch.setattr(checkpointing.Checkpointer, "save", save)
    with pytest.raises(OSError, match="no space left"):
        experiments.run_experiment(make_config(tmp_path, checkpoint_period=20))
    assert len(tries) == 1


def test_an_error_in_closing_does_not_hide_the_one_before(tmp_path, caplog):
    def make(seed):
        environment = Breaking(seed, 30)
        environment.close = fail(OSError("the simulator is gone"))
        return environment

    factories = [make]
    config = make_config(
        tmp_path, environment_factory=lambda seed: (factories or [test_run.make_pendulum]).pop()(seed)
    )
    with pytest.raises(ValueError, match="^a joint broke$") as raised:
        experiments.run_experiment(config)
    assert traceback.extract_tb(raised.value.__traceback__)[-1].name == "step"  # of the environment
    assert "closing the run after the error failed too: OSError('the simulator is gone')" in caplog.text
    assert ".lock" not in os.listdir(tmp_path)
