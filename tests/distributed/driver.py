"""A run that does not end by itself: python -m tests.distributed.driver DIRECTORY."""

import logging
import pathlib
import sys

from minerva_acme import distributed
from tests.distributed import small

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    config = small.experiment(
        pathlib.Path(sys.argv[1]), small.sac_builder(), num_env_steps=10**7, evaluation_period=0
    )
    result = distributed.run_distributed_experiment(config, num_actors=1)
    print("ended", result.env_steps, result.interrupted_by, flush=True)
