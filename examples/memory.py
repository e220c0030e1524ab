"""The use of a memory: CartPole without velocities in its observations.

    python examples/memory.py --agent ppo --memory lstm
    python examples/memory.py --agent ppo --memory none

The cart's position and the pole's angle do not tell which way they move. With an LSTM or a GRU between
observations and torsos, policy and value learn it from the previous steps. Actors begin each episode with an
empty memory, and learners backpropagate through whole rollouts.
"""

from typing import Any, Literal

import dm_env
import numpy as np
import tyro

import minerva_acme
from minerva_acme import builders, environments, experiments, specs, wrappers
from minerva_acme.agents import ppo, vmpo


def without_velocities(observation: np.ndarray) -> np.ndarray:
    """Returns the position [m] and the angle [rad] from CartPole's four numbers."""
    return observation[[0, 2]]


def make_environment(seed: int) -> dm_env.Environment:
    """Makes CartPole-v1 without velocities."""
    return wrappers.ObservationTransformWrapper(
        environments.make_training_environment("CartPole-v1", seed=seed),
        transform=without_velocities,
        spec=specs.Array((2,), np.float32, name="position and angle"),
    )


def make_builder(agent: str, memory: Literal["none", "lstm", "gru"]) -> builders.AgentBuilder[Any]:
    """Makes an agent that learns from rollouts of 16 environments, 128 steps of each."""
    sizes: dict[str, Any] = {"memory": memory, "num_environments": 16, "rollout_steps": 2048}
    if agent == "ppo":
        return ppo.PPOBuilder(ppo.PPOConfig(**sizes, minibatch_size=512))
    return vmpo.VMPOBuilder(vmpo.VMPOConfig(**sizes, policy_layer_sizes=(64, 64), value_layer_sizes=(64, 64)))


def main(
    agent: Literal["ppo", "vmpo"] = "ppo",
    memory: Literal["none", "lstm", "gru"] = "lstm",
    num_env_steps: int = 100_000,
    directory: str = "runs/memory",
    seed: int = 0,
) -> experiments.ExperimentResult:
    """Trains an agent with a memory, or without one.

    Args:
        agent: The agent to train.
        memory: The kind of memory, or none.
        num_env_steps: The number of environment steps of training.
        directory: The folder of the run; an existing run there is resumed.
        seed: The seed of networks, exploration and environments.
    """
    builder = make_builder(agent, memory)
    result = experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=builder,
            environment_factory=make_environment,
            directory=directory,
            num_env_steps=num_env_steps,
            evaluation_period=20_000,
            seed=seed,
        )
    )
    # A loaded policy keeps its state between calls, until it is reset.
    environment = make_environment(seed=1)
    policy = minerva_acme.load_policy(directory, builder, environment)
    timestep, length = environment.reset(), 0
    policy.reset()
    while not timestep.last():
        timestep = environment.step(policy(timestep.observation).action)
        length += 1
    print(f"the loaded policy held the pole for {length} steps")
    return result


if __name__ == "__main__":
    result = tyro.cli(main)
    for name, evaluation in (("random", result.random), ("before", result.before), ("after", result.after)):
        if evaluation is not None:
            print(f"{name:>6}: return {evaluation.mean:.1f} ± {evaluation.std:.1f}, at most 500")
