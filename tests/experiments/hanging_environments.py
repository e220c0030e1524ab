"""A run of two environments in processes of their own, whose steps hang there."""

import dataclasses
import functools
import multiprocessing
import os
import time

from minerva_acme import experiments, wrappers
from minerva_acme.agents import ppo
from tests.experiments import test_run


class Hanging(wrappers.EnvironmentWrapper):
    """Takes `seconds` for its 30th step, where it is not in the main process."""

    def __init__(self, seconds, seed):
        super().__init__(test_run.make_pendulum(seed))
        self._seconds = seconds
        self._num_steps = 0

    def step(self, action):
        self._num_steps += 1
        if self._num_steps == 30 and multiprocessing.parent_process():
            os.write(1, b"HANGING\n")  # in one piece: another process may say so at the same time
            time.sleep(self._seconds)
        return super().step(action)


def run(directory, seconds):
    config = test_run.make_several(
        directory,
        400,
        builder=ppo.PPOBuilder(dataclasses.replace(test_run.SEVERAL, num_environments=2)),
        environment_factory=functools.partial(Hanging, seconds),
        environment_processes=True,
        replay="memory",
    )
    print(experiments.run_experiment(config).interrupted_by, flush=True)
