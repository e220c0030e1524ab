"""Bodies of dm_control's locomotion library: an ant, a rat and a humanoid that run.

    python examples/locomotion.py                   # one episode of random actions of each
    cd examples && minerva check-env locomotion:ant

docs/how-to/locomotion.md trains them, with several actors on Ray.
"""

import dm_env
import numpy as np
from dm_control import composer
from dm_control.locomotion import arenas, tasks, walkers


def run(
    body: composer.Entity, seed: int, time_limit: float, target_velocity: float, **timesteps: float
) -> dm_env.Environment:
    """Makes a run through a corridor. A step earns 1 at the target velocity, and a fall is terminal.

    Args:
        body: The walker.
        seed: The seed of the episodes.
        time_limit: The length of an episode, in seconds; no terminal state.
        target_velocity: In metres per second.
        **timesteps: The seconds of an action, `control_timestep`, and of the simulation, `physics_timestep`.
    """
    task = tasks.RunThroughCorridor(
        body,
        arenas.EmptyCorridor(),
        walker_spawn_position=(0.5, 0.0, 0.0),
        target_velocity=target_velocity,
        **timesteps,
    )
    body.observables.egocentric_camera.enabled = False  # which the task has enabled; sensors are enough
    return composer.Environment(
        task,
        time_limit=time_limit,
        random_state=seed,
        strip_singleton_obs_buffer_dim=True,
        recompile_mjcf_every_episode=False,  # the arena is always the same
    )


def ant(seed: int, time_limit: float = 20.0) -> dm_env.Environment:
    """An ant with 8 joints; for the arguments see `run`."""
    return run(walkers.Ant(), seed, time_limit, target_velocity=3.0)


def rodent(seed: int, time_limit: float = 20.0) -> dm_env.Environment:
    """A rat with 38 actuators; for the arguments see `run`."""
    return run(
        walkers.Rat(), seed, time_limit, target_velocity=1.0, physics_timestep=0.001, control_timestep=0.02
    )


def humanoid(seed: int, time_limit: float = 20.0) -> dm_env.Environment:
    """A humanoid with the 56 joints of motion capture; for the arguments see `run`."""
    return run(walkers.CMUHumanoidPositionControlledV2020(), seed, time_limit, target_velocity=3.0)


def main() -> dict[str, tuple[float, int]]:
    """Returns the return and the length of an episode of random actions of each body."""
    found, random = {}, np.random.default_rng(0)
    for make in (ant, rodent, humanoid):
        environment = make(seed=0)
        spec, timestep, total, length = environment.action_spec(), environment.reset(), 0.0, 0
        while not timestep.last():
            timestep = environment.step(random.uniform(spec.minimum, spec.maximum))
            total, length = total + timestep.reward, length + 1
        found[make.__name__] = total, length
    return found


if __name__ == "__main__":
    for name, (total, length) in main().items():
        print(f"{name}: {total:.2f} in {length} steps")
