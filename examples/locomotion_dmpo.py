"""Distributional MPO on a locomotion task of dm_control's composer, with several actors on Ray.

    python examples/locomotion_dmpo.py                                     # an ant, four actors
    python examples/locomotion_dmpo.py --walker humanoid --num-actors 16   # the CMU humanoid, 56 joints
    python examples/locomotion_dmpo.py --engine inline --num-actors 1      # in threads, to debug; without Ray
    python examples/locomotion_dmpo.py --engine none                       # in one process

The walker is rewarded for running through a corridor at 3 metres per second; an episode ends when it falls.
Composer's arenas need labmaze, which has wheels for Python 3.11 and 3.12. Several actors need Reverb, which
has wheels for 3.11.
"""

import dataclasses
import os
from typing import Literal

import dm_env
import tyro

from minerva_acme import distributed, environments, experiments, wrappers
from minerva_acme.agents import mpo

# Nothing is drawn here, and without a display dm_control would look for one.
os.environ.setdefault("MUJOCO_GL", "disabled")


def make_environment(walker: str, seed: int, time_limit: float) -> dm_env.Environment:
    """Makes the task, wrapped for training: one float32 vector as observation, actions in [-1, 1]."""
    from dm_control import composer
    from dm_control.locomotion import arenas, tasks, walkers

    body = walkers.Ant() if walker == "ant" else walkers.CMUHumanoidPositionControlledV2020()
    task = tasks.RunThroughCorridor(body, arenas.EmptyCorridor(), walker_spawn_position=(0.5, 0.0, 0.0))
    body.observables.egocentric_camera.enabled = False  # the joints and the sensors are enough
    environment = composer.Environment(
        task,
        time_limit=time_limit,
        random_state=seed,
        strip_singleton_obs_buffer_dim=True,
        recompile_mjcf_every_episode=False,  # the arena is always the same
    )
    return environments.make_training_environment(wrappers.DmControlRandomState(environment))


CONFIG = dataclasses.replace(
    mpo.PRESETS["dmpo"],
    # A step earns at most 1, and so the discounted return is at most 100.
    vmin=0.0,
    vmax=100.0,
    policy_learning_rate=1e-4,
    critic_learning_rate=1e-4,
    min_replay_size=10_000,
    max_replay_size=4_000_000,
)


def main(
    walker: Literal["ant", "humanoid"] = "ant",
    num_env_steps: int = 10_000_000,
    num_actors: int = 4,
    engine: Literal["ray", "inline", "none"] = "ray",
    time_limit: float = 30.0,
    directory: str = "runs/locomotion",
    evaluation_period: int = 100_000,
    evaluation_episodes: int = 10,
    config: mpo.MPOConfig = CONFIG,
) -> experiments.ExperimentResult:
    """Trains with several actors and a learner. The same command resumes a run that was stopped."""
    experiment = experiments.ExperimentConfig(
        builder=mpo.MPOBuilder(config),
        environment_factory=lambda seed: make_environment(walker, seed, time_limit),
        directory=directory,
        num_env_steps=num_env_steps,
        evaluation_period=evaluation_period,
        evaluation_episodes=evaluation_episodes,
    )
    if engine == "none":
        return experiments.run_experiment(experiment)
    return distributed.run_distributed_experiment(experiment, num_actors=num_actors, engine=engine)


if __name__ == "__main__":
    result = tyro.cli(main)
    print(result.random, result.before, result.after, sep="\n")
