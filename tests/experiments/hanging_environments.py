"""A run of two environments in processes of their own, whose steps hang there."""

import dataclasses
import functools
import multiprocessing
import os
import time

from minerva_acme import environments, wrappers


class Hanging(wrappers.EnvironmentWrapper):
    """Makes its 30th step once there is a file, where it is not in the main process."""

    def __init__(self, file, seed):
        environment = environments.make_training_environment("Pendulum-v1", seed=seed)
        super().__init__(wrappers.StepLimitWrapper(environment, max_steps=40))
        self._file = file
        self._num_steps = 0

    def step(self, action):
        self._num_steps += 1
        if self._num_steps == 30 and multiprocessing.parent_process():
            os.write(1, b"HANGING\n")  # in one piece: another process may say so at the same time
            while not self._file.exists():
                time.sleep(0.02)
        return super().step(action)


def run(directory):
    # Imported here: the environments' processes import this module, and none of these.
    from minerva_acme import experiments
    from minerva_acme.agents import ppo
    from tests.experiments import test_run

    config = test_run.make_several(
        directory,
        120,
        builder=ppo.PPOBuilder(dataclasses.replace(test_run.SEVERAL, num_environments=2)),
        environment_factory=functools.partial(Hanging, directory / "go"),
        environment_processes=True,
        replay="memory",
    )
    print(experiments.run_experiment(config).interrupted_by, flush=True)
