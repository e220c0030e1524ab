"""Agents in a batch of pendulums: what the page on several environments states. `make learn` runs this.

The pendulums are on the GPU, if there is one.
"""

import dataclasses

import pytest
import torch

from minerva_acme import environments, experiments
from minerva_acme.agents import mpo, ppo, sac

pytestmark = pytest.mark.learning

SAC = sac.SACConfig(
    num_environments=64,
    samples_per_insert=16.0,
    batch_size=128,
    policy_layer_sizes=(64, 64),
    critic_layer_sizes=(64, 64),
    learning_rate=1e-3,
    random_steps=1280,
)
PPO = ppo.PPOConfig(
    num_environments=64,
    rollout_steps=2048,
    minibatch_size=128,
    discount=0.95,
    learning_rate=1e-3,
)
MPO = dataclasses.replace(
    mpo.PRESETS["control"],
    num_environments=64,
    samples_per_insert=8.0,
    batch_size=64,
    sequence_length=3,
    retrace_mc_actions=4,
    num_samples=16,
    policy_layer_sizes=(64, 64),
    critic_layer_sizes=(64, 64),
    policy_learning_rate=1e-3,
    critic_learning_rate=1e-3,
    discount=0.97,
)
# Builder, environment steps, seed, and what the mean return must exceed. The best known policies score about
# -150; the mean of 64 first states varies by 10.
RUNS = {
    **{f"sac-{seed}": (sac.SACBuilder(SAC), 48_000, seed, -175.0) for seed in (0, 1, 2)},
    "ppo-0": (ppo.PPOBuilder(PPO), 400_000, 0, -200.0),
    "mpo-0": (mpo.MPOBuilder(MPO), 48_000, 0, -175.0),
}


DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def make_pendulums(seed):
    generator = torch.Generator(DEVICE).manual_seed(seed)
    return environments.BatchedPendulum(64, generator=generator, device=DEVICE)


@pytest.mark.parametrize("run", RUNS)
def test_64_pendulums_are_swung_up_about_as_well_as_is_known(tmp_path, run):
    builder, num_env_steps, seed, least = RUNS[run]
    result = experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=builder,
            environment_factory=make_pendulums,
            directory=tmp_path,
            num_env_steps=num_env_steps,
            evaluation_period=0,
            evaluation_episodes=64,
            tensorboard=False,
            device=str(DEVICE),
            seed=seed,
        )
    )
    print(f"{run} on {DEVICE.type}: {result.after.mean:.1f}", flush=True)
    assert result.before.mean < -1_000.0
    assert result.after.mean > least
