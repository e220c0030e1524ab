"""Small experiments for several actors, also for processes of their own."""

import csv
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import dm_env
import numpy as np

from minerva_acme import builders, core, experiments, specs
from minerva_acme.agents import impala, ppo, sac, vmpo


class Ramp(specs.SpecMethods, dm_env.Environment):
    """Random observations in [-1, 1]; pays 1 - |a - o|; episodes of 20 steps, cut off."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._specs = specs.EnvironmentSpec(
            specs.BoundedArray((1,), np.float32, -1.0, 1.0, name="observation"),
            specs.BoundedArray((1,), np.float32, -1.0, 1.0, name="action"),
            specs.Array((), np.float32, name="reward"),
            specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
        )
        self._step = 20
        self._observation = np.zeros(1, np.float32)

    def reset(self) -> dm_env.TimeStep:
        self._step = 0
        self._observation = self._random.uniform(-1, 1, 1).astype(np.float32)
        return dm_env.restart(self._observation)

    def step(self, action: np.ndarray) -> dm_env.TimeStep:
        if self._step == 20:
            return self.reset()
        self._step += 1
        reward = np.float32(1 - abs(float(action[0] - self._observation[0])))
        self._observation = self._random.uniform(-1, 1, 1).astype(np.float32)
        if self._step == 20:
            return dm_env.truncation(reward, self._observation, np.float32(1.0))
        return dm_env.transition(reward, self._observation, np.float32(1.0))


# 4 items are drawn for each that is written.
_REPLAYED: dict[str, Any] = {
    "min_replay_size": 50,
    "max_replay_size": 2_000,
    "batch_size": 16,
    "samples_per_insert": 4.0,
    "policy_layer_sizes": (8,),
}


def sac_builder(**changes: Any) -> sac.SACBuilder:
    """SAC with layers of 8 units; 4 items drawn for each that is written."""
    settings = {**_REPLAYED, "critic_layer_sizes": (8,)}
    return sac.SACBuilder(sac.SACConfig(**(settings | changes)))


class Wrapped(core.Learner):
    """A learner that does what another one does."""

    def __init__(self, learner: core.Learner) -> None:
        self._learner = learner

    def step(self) -> Any:
        return self._learner.step()

    def get_variables(self, names: Sequence[str]) -> Any:
        return self._learner.get_variables(names)

    def poll_variables(self, names: Sequence[str], newer_than: int | None = None) -> Any:
        return self._learner.poll_variables(names, newer_than)

    def save(self) -> Any:
        return self._learner.save()

    def restore(self, state: Any) -> None:
        self._learner.restore(state)


class Saving(Wrapped):
    """A learner that does something else when it is saved."""

    def __init__(self, learner: core.Learner, on_save: Callable[[], None]) -> None:
        super().__init__(learner)
        self._on_save = on_save

    def save(self) -> Any:
        self._on_save()
        return super().save()


class SavingBuilder(sac.SACBuilder):
    """SAC whose learner does something else when it is saved."""

    def __init__(self, config: sac.SACConfig, on_save: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_save = on_save

    def make_learner(self, parts: builders.LearnerParts[sac.SACNetworks]) -> core.Learner:
        return Saving(super().make_learner(parts), self._on_save)


def saving_builder(on_save: Callable[[], None]) -> SavingBuilder:
    """As `sac_builder`. Args: on_save: Called, in the learner's process, when its state is saved."""
    return SavingBuilder(sac_builder().config, on_save)


# Rollouts of 8 steps of each of 2 environments.
_ROLLOUTS: dict[str, Any] = {
    "num_environments": 2,
    "rollout_steps": 16,
    "policy_layer_sizes": (8,),
    "value_layer_sizes": (8,),
}


def ppo_builder(**changes: Any) -> ppo.PPOBuilder:
    """PPO with layers of 8 units; rollouts of 8 steps of each of 2 environments."""
    settings = {**_ROLLOUTS, "minibatch_size": 8, "num_epochs": 2}
    return ppo.PPOBuilder(ppo.PPOConfig(**(settings | changes)))


def vmpo_builder(**changes: Any) -> vmpo.VMPOBuilder:
    """V-MPO with layers of 8 units; rollouts of 8 steps of each of 2 environments."""
    settings = {**_ROLLOUTS, "m_steps": 2}
    return vmpo.VMPOBuilder(vmpo.VMPOConfig(**(settings | changes)))


def impala_builder(**changes: Any) -> impala.IMPALABuilder:
    """IMPALA with layers of 8 units; rollouts of 8 steps of each of 2 environments."""
    return impala.IMPALABuilder(impala.IMPALAConfig(**(_ROLLOUTS | changes)))


def experiment(directory: pathlib.Path, builder: Any, **changes: Any) -> experiments.ExperimentConfig:
    """A short experiment in `Ramp`."""
    settings: dict[str, Any] = {
        "environment_factory": Ramp,
        "num_env_steps": 600,
        "evaluation_period": 300,
        "evaluation_episodes": 1,
        "checkpoint_period": 200,
        "log_period_seconds": 0.0,
        "tensorboard": False,
        "device": "cpu",
    }
    return experiments.ExperimentConfig(builder=builder, directory=directory, **(settings | changes))


def rows(directory: pathlib.Path, label: str) -> list[dict[str, str]]:
    """The rows of a log of a run."""
    with open(directory / f"{label}.csv", newline="") as file:
        return list(csv.DictReader(file))
