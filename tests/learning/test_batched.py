"""Agents in a batch of pendulums: what the page on several environments states. `make learn` runs this.

With MINERVA_TEST_GPU=1 the pendulums and the learner are on the GPU.
"""

import dataclasses
import functools
import time

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
SAC_OF_4096 = dataclasses.replace(
    SAC,
    num_environments=4_096,
    samples_per_insert=4.0,
    batch_size=2_048,
    random_steps=40_960,
    min_replay_size=40_960,
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
# -150; the mean of 64 first states varies by 10, the mean of 4,096 by 1.
RUNS = {
    **{f"sac-{seed}": (sac.SACBuilder(SAC), 48_000, seed, -175.0) for seed in (0, 1, 2)},
    "ppo-0": (ppo.PPOBuilder(PPO), 400_000, 0, -200.0),
    "mpo-0": (mpo.MPOBuilder(MPO), 48_000, 0, -175.0),
    "sac-of-4096-0": (sac.SACBuilder(SAC_OF_4096), 600 * 4_096, 0, -160.0),
}


DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def make_pendulums(number, seed):
    generator = torch.Generator(DEVICE).manual_seed(seed)
    return environments.BatchedPendulum(number, generator=generator, device=DEVICE)


@pytest.mark.parametrize("run", RUNS)
def test_pendulums_are_swung_up_about_as_well_as_is_known(tmp_path, run):
    builder, num_env_steps, seed, least = RUNS[run]
    start = time.monotonic()
    result = experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=builder,
            environment_factory=functools.partial(make_pendulums, builder.num_environments),
            directory=tmp_path,
            num_env_steps=num_env_steps,
            evaluation_period=0,
            evaluation_episodes=builder.num_environments,
            tensorboard=False,
            device=str(DEVICE),
            seed=seed,
        )
    )
    print(f"{run} on {DEVICE.type}: {result.after.mean:.1f}, {time.monotonic() - start:.0f} s", flush=True)
    assert result.before.mean < -1_000.0
    assert result.after.mean > least
