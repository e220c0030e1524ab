"""Small trainings that write down at once what they do."""

import functools
import logging
import math
import os
import pathlib
import signal
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import dm_env
import torch

from minerva_acme import builders, environments, experiments, wrappers
from minerva_acme.agents import d4pg, dqn, impala, ppo, r2d2, registry, vmpo
from minerva_acme.experiments import progress
from minerva_acme.machine import memory
from tests.fields import of_fields

STORES = ("memory", "reverb")
SAMPLE_SECONDS = 0.5
"""Between the samples of a soak."""
EVALUATION_PERIOD = 500
"""Environment steps between evaluations in a storm. The first comes after the first whole checkpoint: from
the best alone a run does not resume as it was."""
_EPISODE_STEPS = 50
_SIZES: dict[str, Any] = {"policy_layer_sizes": (16,), "acceleration": "off"}
_OFF_POLICY: dict[str, Any] = {
    "critic_layer_sizes": (16,),
    "batch_size": 8,
    "min_replay_size": 40,
    "max_replay_size": 500,
    "samples_per_insert": 2.0,
}


def make_pendulum(seed: int) -> dm_env.Environment:
    """A quick environment with short episodes, which end together where there are several."""
    environment = environments.make_training_environment("Pendulum-v1", seed=seed)
    return wrappers.StepLimitWrapper(environment, max_steps=_EPISODE_STEPS)


def make_cartpole(seed: int) -> dm_env.Environment:
    """A quick environment with short episodes, which do not end together, so that a save cuts some."""
    environment = environments.make_training_environment("CartPole-v1", seed=seed)
    return wrappers.StepLimitWrapper(environment, max_steps=_EPISODE_STEPS)


class Agent(NamedTuple):
    """What is trained in a storm."""

    builder: builders.AgentBuilder[Any]
    make_environment: Callable[[int], dm_env.Environment]
    steps_between_saves: int
    """Environment steps from a save to the next at most, see `saver.Saver.is_due`."""


def _small(agent: str) -> Agent:
    """An agent of the registry that acts by numbers, and learns from replay."""
    entry = registry.AGENTS[agent]
    few = {"random_steps": 60, "num_samples": 4, "retrace_mc_actions": 2, **_SIZES, **_OFF_POLICY}
    return Agent(entry.builder(entry.config(**of_fields(entry.config, few))), make_pendulum, 100)


_OTHERS = {
    "d4pg": Agent(
        d4pg.D4PGBuilder(d4pg.D4PGConfig(**_SIZES, **_OFF_POLICY, prioritized=True)), make_pendulum, 100
    ),
    # With one environment a save waits for the end of an episode, at most for another period.
    "dqn": Agent(
        dqn.DQNBuilder(
            dqn.DQNConfig(**_OFF_POLICY, acceleration="off", target_update_period=20, epsilon_steps=200)
        ),
        make_cartpole,
        200,
    ),
    "r2d2": Agent(
        r2d2.R2D2Builder(
            r2d2.R2D2Config(
                **{name: value for name, value in _OFF_POLICY.items() if name != "critic_layer_sizes"},
                memory_size=8,
                sequence_length=8,
                sequence_period=4,
                burn_in=2,
                num_environments=1,
            )
        ),
        make_cartpole,
        200,
    ),
    "ppo": Agent(
        ppo.PPOBuilder(
            ppo.PPOConfig(
                **_SIZES,
                value_layer_sizes=(16,),
                num_environments=2,
                rollout_steps=64,
                minibatch_size=32,
                num_epochs=2,
            )
        ),
        make_cartpole,
        400,
    ),
    "vmpo": Agent(
        vmpo.VMPOBuilder(
            vmpo.VMPOConfig(
                **_SIZES, value_layer_sizes=(16,), num_environments=2, rollout_steps=64, m_steps=2
            )
        ),
        make_pendulum,
        100,
    ),
    "impala": Agent(
        impala.IMPALABuilder(
            impala.IMPALAConfig(**_SIZES, value_layer_sizes=(16,), num_environments=2, rollout_steps=32)
        ),
        make_cartpole,
        400,
    ),
}
AGENTS = {
    agent: _OTHERS[agent] if agent in _OTHERS else _small(agent)
    for agent, entry in registry.AGENTS.items()
    if not getattr(entry.presets["default"], "needs_recorded_data", False)
}


class Journal:
    """Lines of what a training has done, which outlive its process."""

    def __init__(self, path: pathlib.Path) -> None:
        """Opens the file, or continues it."""
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 -- for as long as the process lives

    def write(self, *values: object) -> None:
        """Adds a line, with the time in front."""
        self._file.write((" ".join(map(str, (time.time(), *values))) + "\n").encode())


def make_config(agent: str, store: str, folder: pathlib.Path, **options: Any) -> experiments.ExperimentConfig:
    """The experiment that is trained."""
    return experiments.ExperimentConfig(
        **{
            "builder": AGENTS[agent].builder,
            "environment_factory": AGENTS[agent].make_environment,
            "directory": folder / "run",
            "replay": store,
            "device": "cpu",
            "evaluation_episodes": 1,
            **options,
        }
    )


class Slow(NamedTuple):
    """What takes long in a training that is to be stopped."""

    what: str
    """"step": a step of the environment; "save": a checkpoint; "stop": every checkpoint, from a step on."""
    seconds: float
    step: int
    """The step of the process from which on it is slow."""
    flag: pathlib.Path
    """Gets the number of the process that is to be stopped, once it is slow."""
    process: int = 0
    """That number; 0: the process that is slow."""

    def begin(self) -> None:
        """Tells that it is slow from now on."""
        unfinished = self.flag.with_suffix(".unfinished")
        unfinished.write_text(str(self.process or os.getpid()))
        unfinished.rename(self.flag)


class SlowEnvironment(wrappers.EnvironmentWrapper):
    """Takes long for one step, or for its part in a checkpoint."""

    def __init__(self, environment: dm_env.Environment, slow: Slow) -> None:
        super().__init__(environment)
        self._slow = slow
        self._num_steps = 0
        self._num_saves = 0

    def step(self, action: Any) -> dm_env.TimeStep:
        self._num_steps += 1
        if self._num_steps == self._slow.step and self._slow.what != "save":
            self._slow.begin()
            if self._slow.what == "step":
                time.sleep(self._slow.seconds)
        return super().step(action)

    def save(self) -> Any:
        is_due = self._num_steps >= self._slow.step and (self._slow.what == "stop" or not self._num_saves)
        if is_due and self._slow.what != "step":
            self._num_saves += 1
            if self._slow.what == "save":
                self._slow.begin()
            time.sleep(self._slow.seconds)
        return self._environment.save()


def make_slow(make: Callable[[int], dm_env.Environment], slow: Slow, seed: int) -> dm_env.Environment:
    """Makes an environment that takes long."""
    return SlowEnvironment(make(seed), slow)


def storm(agent: str, store: str, folder: pathlib.Path, num_env_steps: int, slow: Slow | None = None) -> None:
    """Trains, and writes down each report of progress. Args: slow: what takes long, if anything."""
    journal = Journal(folder / "journal.txt")

    def note(report: progress.Progress) -> None:
        journal.write(report.phase, report.env_steps, report.learner_steps, report.num_episodes)

    make = AGENTS[agent].make_environment
    slowed = {"environment_factory": functools.partial(make_slow, make, slow)} if slow else {}
    config = make_config(
        agent,
        store,
        folder,
        **slowed,
        evaluation_environment_factory=make,
        num_env_steps=num_env_steps,
        checkpoint_period=100,
        evaluation_period=EVALUATION_PERIOD,
        log_period_seconds=0.0,
        tensorboard=False,
    )
    experiments.run_experiment(config, note)


def soak(agent: str, store: str, folder: pathlib.Path, seconds: float) -> None:
    """Trains until time is up, and writes down what the process holds."""
    journal = Journal(folder / "journal.txt")
    first, due = math.inf, 0.0

    def sample(report: progress.Progress) -> None:
        nonlocal first, due
        now = time.monotonic()
        # While it saves or evaluates, it holds more.
        if report.phase == "train" and now >= due:
            first, due = min(first, now), now + SAMPLE_SECONDS
            resident = memory.resident_bytes()
            held = [len(os.listdir(f"/proc/self/{kind}")) for kind in ("task", "fd")]
            journal.write("sample", report.env_steps, report.learner_steps, resident, *held)
        if now - first > seconds:
            signal.raise_signal(signal.SIGTERM)

    config = make_config(
        agent,
        store,
        folder,
        num_env_steps=10**9,
        checkpoint_period=500,
        evaluation_period=500,
        log_period_seconds=1.0,
    )
    experiments.run_experiment(config, sample)


def prepare() -> None:
    """Prepares a process for a training."""
    logging.basicConfig(level=logging.WARNING, format="warned: %(message)s")
    torch.set_num_threads(1)  # everything here is tiny
