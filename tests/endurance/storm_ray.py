"""Kills processes of a distributed run at random.

python -m tests.endurance.storm_ray [--kills 20] [--seed 0]
"""

import argparse
import itertools
import logging
import os
import pathlib
import tempfile
import time
import uuid

import numpy as np

from minerva_acme import distributed
from minerva_acme.runs import checkpointing
from tests.distributed import killing, small

_NODES = ("counter", "replay", "learner", "actor/0", "actor/1", "evaluator")
_LEFT_SECONDS = 90.0


def storm(directory: pathlib.Path, num_kills: int, seed: int) -> None:
    """Trains with two actors until so many processes were killed, and checks what comes of it."""
    mark = os.environ[killing.MARK] = uuid.uuid4().hex
    names = np.random.default_rng(seed).choice(_NODES, num_kills).tolist()
    killer = killing.Killer(list(names), directory)
    config = small.experiment(directory, small.sac_builder(), num_env_steps=10**9)
    result = distributed.run_distributed_experiment(config, killer, num_actors=2)
    assert killer.killed == names, (killer.killed, names)
    env_steps = [progress.env_steps for progress in killer.progress]
    learner_steps = [progress.learner_steps for progress in killer.progress]
    assert env_steps == sorted(env_steps), "environment steps fell"
    falls = sum(b < a for a, b in itertools.pairwise(learner_steps))
    assert falls <= names.count("learner"), f"learner steps fell {falls} times"
    counts = checkpointing.load_state(checkpointing.find(directory))["counter"]
    found = counts["actor_steps"], counts["learner_steps"]
    assert found == (result.env_steps, result.learner_steps), (found, result)
    deadline = time.monotonic() + _LEFT_SECONDS
    while left := killing.processes(mark):
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.5)
    print(f"{num_kills} kills, {result.env_steps:,} environment and {result.learner_steps:,} learner steps")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Kills processes of a distributed run at random.")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    with tempfile.TemporaryDirectory() as folder:
        storm(pathlib.Path(folder), arguments.kills, arguments.seed)
