"""SAC in a batch of a task of MuJoCo Playground, which JAX simulates in tensors that share its memory.

    python examples/playground.py --task CartpoleSwingup --action-repeat 8 --num-env-steps 48000

It needs the extra `playground`. Brax's own environments are taken too: `brax.envs.get_environment("ant")`.
"""

import tyro

from minerva_acme import environments, experiments
from minerva_acme.agents import sac

CONFIG = sac.SACConfig(
    num_environments=32,
    samples_per_insert=16.0,  # with batches of 128, 4 learner steps follow each step of 32 environments
    batch_size=128,
    policy_layer_sizes=(128, 128),
    critic_layer_sizes=(128, 128),
    learning_rate=1e-3,
    random_steps=4_000,
)


def main(
    task: str = "CartpoleSwingup",
    action_repeat: int = 8,
    num_env_steps: int = 48_000,
    directory: str = "runs/playground",
    device: str = "cpu",
    seed: int = 0,
    config: sac.SACConfig = CONFIG,
) -> experiments.ExperimentResult:
    """Trains and evaluates, in batches of the same size; a step repeats its action."""
    from brax.envs.wrappers import training
    from mujoco_playground import registry

    # By default, Playground simulates with Warp, which needs an NVIDIA GPU.
    simulated = registry.load(task, config_overrides={"impl": "jax"} if device == "cpu" else None)
    episode_length = registry.get_default_config(task).episode_length
    repeating = training.EpisodeWrapper(simulated, episode_length, action_repeat)

    def make_environments(seed: int) -> environments.BatchedBrax:
        # The task is loaded outside of this function: JAX compiles it once for all that are made of it.
        return environments.BatchedBrax(
            repeating, config.num_environments, episode_length=episode_length, seed=seed, device=device
        )

    return experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=sac.SACBuilder(config),
            environment_factory=make_environments,
            directory=directory,
            num_env_steps=num_env_steps,
            evaluation_period=num_env_steps // 4,
            evaluation_episodes=config.num_environments,
            device=device,
            seed=seed,
        )
    )


if __name__ == "__main__":
    result = tyro.cli(main)
    print(result.random, result.before, result.after, sep="\n")
