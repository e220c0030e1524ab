"""SAC in a batch of pendulums: what the page on several environments states. `make learn` runs this."""

import pytest
import torch

from minerva_acme import environments, experiments
from minerva_acme.agents import sac

pytestmark = pytest.mark.learning

CONFIG = sac.SACConfig(
    num_environments=64,
    samples_per_insert=16.0,
    batch_size=128,
    policy_layer_sizes=(64, 64),
    critic_layer_sizes=(64, 64),
    learning_rate=1e-3,
    random_steps=1280,
)


def make_pendulums(seed):
    return environments.BatchedPendulum(64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_64_pendulums_are_swung_up_as_well_as_is_known(tmp_path, seed):
    result = experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=sac.SACBuilder(CONFIG),
            environment_factory=make_pendulums,
            directory=tmp_path,
            num_env_steps=48_000,
            evaluation_period=0,
            evaluation_episodes=64,
            tensorboard=False,
            device="cpu",
            seed=seed,
        )
    )
    assert result.before.mean < -1_000.0
    # The best known policies score about -150; the mean of 64 first states varies by 10.
    assert result.after.mean > -175.0
