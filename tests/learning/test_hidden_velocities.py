"""Cartpole swingup without velocities: MPO with a memory against stacked frames. `make learn` runs this.

Runs stay in runs/learn, also stopped ones: a second call goes on with them.
"""

import statistics

import pytest

from minerva_acme import runs
from minerva_acme.runs import checkpointing, run_folder

TASK, SEEDS, NUM_ENV_STEPS = "tests.learning.hidden_velocities:swingup", (0, 1), 50_000
# What replaces the velocities: a memory, the last three observations, or nothing. Actions are held for four
# frames: with a decision each frame, none of the three leaves the plateau before the pole is swung up.
RIVALS = {
    "memory": ["--preset", "memory", "--env-kwargs", "repeat=4"],
    "stack": ["--preset", "demo", "--env-kwargs", "repeat=4", "num_frames=3"],
    "one-frame": ["--preset", "demo", "--env-kwargs", "repeat=4"],
}

pytestmark = pytest.mark.learning


def score(directory):
    """The mean return of ten episodes without exploration, from initial states not seen in training."""
    description = run_folder.read(directory)
    make_environment = description.make_environment_factory(import_code=True)
    result = runs.evaluate_checkpoint(
        checkpointing.Checkpointer(directory / "checkpoints").latest(),
        description.make_builder(),
        make_environment(10_000 + description.seed),
        num_episodes=10,
    )
    print(f"{directory.name}: {result.mean:.1f} +- {result.std:.1f}", flush=True)
    return result.mean


def test_a_memory_replaces_the_velocities_like_a_stack_of_frames(train):
    scores = {
        name: statistics.fmean(
            score(train(f"hidden-velocities-{name}", "mpo", TASK, NUM_ENV_STEPS, seed, *flags))
            for seed in SEEDS
        )
        for name, flags in RIVALS.items()
    }
    print(scores, flush=True)
    assert scores["memory"] >= 0.9 * scores["stack"]
    assert scores["memory"] > scores["one-frame"]
