"""A run that does not end by itself: python -m tests.distributed.driver DIRECTORY [--slow]."""

import functools
import logging
import pathlib
import sys
import time
from typing import Any

import numpy as np

from minerva_acme import distributed
from tests.distributed import small

_SLOW_SECONDS = 7.0


class Slow(small.Ramp):
    """Takes long for a step, once it has made 150, and says so in a file."""

    def __init__(self, directory: str, seed: int) -> None:
        super().__init__(seed)
        self._said = pathlib.Path(directory, "slow")
        self._num_steps = 0

    def step(self, action: np.ndarray) -> Any:
        self._num_steps += 1
        if self._num_steps > 150:
            self._said.touch()
            time.sleep(_SLOW_SECONDS)
        return super().step(action)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    directory, is_slow = sys.argv[1], "--slow" in sys.argv
    builder = small.saving_builder(functools.partial(time.sleep, _SLOW_SECONDS)) if is_slow else None
    config = small.experiment(
        pathlib.Path(directory),
        builder or small.sac_builder(),
        num_env_steps=10**7,
        evaluation_period=0,
        checkpoint_period=0 if is_slow else 200,
    )
    if is_slow:
        # By the name under which Ray's workers find it.
        from tests.distributed import driver

        factory = functools.partial(driver.Slow, directory)
        config = type(config)(
            **{**vars(config), "environment_factory": factory, "evaluation_environment_factory": small.Ramp}
        )
    run = distributed.run_distributed_experiment  # imported here
    print("begins", flush=True)
    result = run(config, num_actors=1)
    print("ended", result.env_steps, result.interrupted_by, flush=True)
