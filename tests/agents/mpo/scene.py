"""A small MPO learner, and batches for it."""

from typing import NamedTuple

import numpy as np
import torch

from minerva_acme import builders, counting, specs, testing, types
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


def make_learner(
    spec, dataset, config=SMALL, critic_target=None, seed=0, networks=None, generator=None, **hooks
):
    """Returns the learner and the rows that it logs.

    Args:
        spec: The environment's spec.
        dataset: The dataset.
        config: The hyperparameters.
        critic_target: The critic's target, or None for Retrace from three actions.
        seed: Seeds the networks and the learner.
        networks: The networks, or None to make them.
        generator: The learner's generator, or None to make it.
        **hooks: What `make_duals`, `make_policy_loss` and others of `MPOBuilder` return, by names without
            `make_`; and other `LearnerParts`.
    """
    logger = testing.FakeLogger()
    generator = generator or torch.Generator().manual_seed(seed)
    hooks["critic_target"] = critic_target or targets.retrace(lambda_=0.95, num_actions=3)
    names = {f"make_{name}": part for name, part in hooks.items() if hasattr(mpo.MPOBuilder, f"make_{name}")}
    functions = {name: lambda self, *arguments, part=part: part for name, part in names.items()}
    builder = type("Own", (mpo.MPOBuilder,), functions)(config)
    learner = builder.make_learner(
        builders.LearnerParts(
            **{
                "networks": networks or mpo.make_networks(spec, config, generator),
                "dataset": dataset,
                "spec": spec,
                "counter": counting.Counter(),
                "logger": logger,
                "generator": generator,
                "device": torch.device("cpu"),
                **{name: part for name, part in hooks.items() if f"make_{name}" not in names},
            }
        )
    )
    return learner, logger.rows


def losses_of(learner):
    """Returns the `mpo.MPOLosses` of a learner."""
    return learner.losses["critic"].__self__
