"""Acting and learning see the same policy: as long as nothing has moved, all ratios are 1.

But for rounding: acting computes with arrays, in another order than the learner's kernels. Bit for bit
they agree where both go through the module itself, as they do for layers that arrays do not know.
"""

import pytest
import torch

from minerva_acme import environments, testing

from ..conftest import PPO, VMPO


def make_environment(environment_id):
    if environment_id == "bounded":  # observations far from mean 0 and deviation 1
        return lambda seed: testing.FakeEnvironment.bounded(episode_length=5, seed=seed)
    return lambda seed: environments.make_training_environment(environment_id, seed=seed)


class Ratios:
    """Compares, with the learner's own network, before each of its steps."""

    def __init__(self, config):
        super().__init__(config)
        self.log_ratios: list[torch.Tensor] = []
        self.recorded: list[torch.Tensor] = []
        self.means: list[torch.Tensor] = []

    @torch.no_grad()
    def on_rollout(self, rollout):
        network = self.learner.network
        # In one call per time step, as the actor did.
        log_ratios = []
        extras = rollout.extras
        for observation, raw, recorded in zip(
            rollout.observation, extras.raw_action, extras.log_prob, strict=True
        ):
            log_prob = network.policy(observation).log_prob(raw)
            log_ratios.append(log_prob - recorded)
        self.log_ratios.append(torch.stack(log_ratios))
        self.recorded.append(extras.log_prob)
        self.means.append(network.normalizer.mean.clone())


# How far a recorded log-density may be from the learner's, in relation to its size and to 1.
both_ways = pytest.mark.parametrize(("acceleration", "bound"), [("auto", 1e-6), ("off", 0.0)])


@both_ways
@pytest.mark.parametrize(
    ("agent", "environment_id", "num_environments"),
    [(PPO, "CartPole-v1", 1), (VMPO, "bounded", 4)],  # V-MPO squashes
    indirect=["agent"],
)
def test_the_recorded_density_is_the_learners(
    agent, run, environment_id, num_environments, acceleration, bound
):
    builder = agent.recording(
        Ratios, num_environments=num_environments, rollout_steps=16, acceleration=acceleration
    )
    run(builder, make_environment(environment_id), 16 * 3)
    assert len(builder.log_ratios) == 3
    for log_ratio, recorded in zip(builder.log_ratios, builder.recorded, strict=True):
        assert (log_ratio.abs() <= bound * (1.0 + recorded.abs())).all()
    # Not because nothing happened in between.
    assert all((a != b).all() for a, b in zip(builder.means, builder.means[1:], strict=False))
