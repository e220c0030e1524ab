"""A small MPO learner, and batches for it."""

from typing import NamedTuple

import numpy as np
import torch

from minerva_acme import counting, losses, specs, testing, types
from minerva_acme.agents import mpo
from minerva_acme.agents.mpo import targets

SPEC = specs.EnvironmentSpec(
    observations=specs.Array((3,), np.float32, name="observation"),
    actions=specs.BoundedArray((2,), np.float32, -1.0, 1.0, name="action"),
    rewards=specs.Array((), np.float32, name="reward"),
    discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
)
SMALL = mpo.MPOConfig(
    policy_layer_sizes=(16, 16), critic_layer_sizes=(16, 16), batch_size=4, num_samples=6, min_replay_size=1
)


class Sample(NamedTuple):
    data: types.Trajectory


def make_trajectory(batch_size=4, length=5, seed=0, **overrides):
    """A batch of random sequences for `spec`."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(batch_size, *shape, generator=generator)

    raw_action = normal(length, 2)
    fields = {
        "observation": normal(length + 1, 3),
        "action": raw_action.clamp(-1.0, 1.0),
        "reward": normal(length),
        "discount": torch.ones(batch_size, length),
        "mask": torch.ones(batch_size, length),
        "extras": mpo.BehaviourExtras(log_prob=normal(length) - 2.0, raw_action=raw_action),
    }
    return types.Trajectory(**{**fields, **overrides})


def repeat(trajectory):
    while True:
        yield Sample(data=trajectory)


def make_learner(spec, dataset, config=SMALL, critic_target=None, seed=0, **overrides):
    """Returns the learner and the rows that it logs."""
    logger = testing.FakeLogger()
    generator = torch.Generator().manual_seed(seed)
    learner = mpo.make_learner(
        **{
            "networks": mpo.make_networks(spec, config, generator),
            "duals": losses.MPODuals(
                num_dimensions=2 if config.per_dimension_constraint else 1,
                init_log_temperature=config.init_log_temperature,
                init_log_alpha_mean=config.init_log_alpha_mean,
                init_log_alpha_stddev=config.init_log_alpha_stddev,
                action_penalty=config.action_penalty,
            ),
            "dataset": dataset,
            "critic_target": critic_target or targets.retrace(lambda_=0.95, num_actions=3),
            "config": config,
            "action_spec": spec.actions,
            "counter": counting.Counter(),
            "logger": logger,
            "generator": generator,
            "device": torch.device("cpu"),
            **overrides,
        }
    )
    return learner, logger.rows


def losses_of(learner):
    """Returns the `mpo.MPOLosses` of a learner."""
    return learner.losses["critic"].__self__
