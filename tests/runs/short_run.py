"""A run of a few steps, for tests that need its folder."""

import pathlib
from typing import Any

from minerva_acme import environments, experiments
from minerva_acme.agents import ppo

SMALL: dict[str, Any] = {
    "num_environments": 1,
    "rollout_steps": 8,
    "minibatch_size": 8,
    "num_epochs": 1,
    "policy_layer_sizes": (8,),
    "value_layer_sizes": (8,),
}


def train(
    directory: pathlib.Path, builder: type[ppo.PPOBuilder] = ppo.PPOBuilder, **settings: Any
) -> pathlib.Path:
    """Trains PPO on CartPole for 16 steps; returns the run's folder."""
    experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=builder(ppo.PPOConfig(**{**SMALL, **settings})),
            environment_factory=lambda seed: environments.make_training_environment("CartPole-v1", seed=seed),
            directory=directory,
            num_env_steps=16,
            evaluation_period=0,
            evaluation_episodes=1,
            replay="memory",
            tensorboard=False,
        )
    )
    return directory
