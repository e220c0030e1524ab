"""Swap V-MPO for PPO in the same experiment: only the builder changes.

    python examples/swap_agents.py --agent vmpo
    python examples/swap_agents.py --agent ppo

Both learn from rollouts. `RolloutAdder` writes every T steps of each environment into a queue, and a learner
step takes one rollout from each environment. No rollout is used twice. The builders differ in networks and
loss.
"""

from typing import Any, Literal

import tyro

from minerva_acme import builders, environments, experiments
from minerva_acme.agents import ppo, vmpo

BUILDERS: dict[str, builders.AgentBuilder[Any]] = {
    "vmpo": vmpo.VMPOBuilder(vmpo.VMPOConfig(rollout_steps=2048, num_environments=8)),
    "ppo": ppo.PPOBuilder(ppo.PPOConfig(rollout_steps=2048, num_environments=8)),
}


def main(
    agent: Literal["vmpo", "ppo"] = "vmpo",
    env: str = "CartPole-v1",
    num_env_steps: int = 100_000,
    directory: str = "runs/swap",
    seed: int = 0,
) -> experiments.ExperimentResult:
    """Trains one of the two agents.

    Args:
        agent: The agent to train.
        env: The environment id, with continuous or discrete actions.
        num_env_steps: The number of environment steps of training.
        directory: The folder for the runs, with a subfolder for each agent; an existing run is resumed.
        seed: The seed of networks, exploration and environments.
    """
    experiment = experiments.ExperimentConfig(
        builder=BUILDERS[agent],  # the only line that depends on the agent
        environment_factory=lambda seed: environments.make_training_environment(env, seed=seed),
        directory=f"{directory}/{agent}",
        num_env_steps=num_env_steps,
        evaluation_period=20_000,
        seed=seed,
    )
    return experiments.run_experiment(experiment)


if __name__ == "__main__":
    result = tyro.cli(main)
    for name, evaluation in (("random", result.random), ("before", result.before), ("after", result.after)):
        if evaluation is not None:
            print(f"{name:>6}: return {evaluation.mean:.1f} ± {evaluation.std:.1f}")
