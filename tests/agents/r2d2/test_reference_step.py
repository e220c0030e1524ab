"""Learner steps of R2D2 against those of `reference.py`: all weights, what is logged, and priorities."""

import numpy as np
import pytest
import torch

from minerva_acme import replay, types
from minerva_acme.agents import acting, r2d2

from .. import transition_scene as scene
from . import reference

BURN_IN, T, SIZE = 2, 6, 4
NUM_STEPS = 4
SPEC = scene.make_spec(discrete=True)
# A step before one that did not happen is an episode's last, cut short or ended by its discount.
MASKS = [
    [1, 1, 1, 1, 1, 1, 1, 1],
    [0, 0, 1, 1, 1, 1, 1, 1],
    [0, 1, 1, 1, 1, 1, 0, 0],
    [1, 0, 1, 1, 1, 0, 1, 1],
    [1, 1, 1, 1, 0, 1, 1, 1],
    [1, 1, 0, 0, 0, 0, 0, 0],
    [0, 0, 0, 0, 0, 1, 0, 1],
    [1, 1, 1, 1, 1, 1, 1, 0],
]
# Their probabilities in a table of 16, and weights by an exponent of 1/2, relative to the largest.
PROBABILITIES = [1 / 4, 1 / 16, 1 / 64, 1 / 4, 1 / 64, 1 / 16, 1 / 64, 1 / 16]
WEIGHTS = [1 / 4, 1 / 2, 1, 1 / 4, 1, 1 / 2, 1, 1 / 2]
OPTIONS = {
    "double": {},
    "not double": {"double": False},
    "one step": {"n_step": 1},
    "all steps": {"n_step": 9},
    "not dueling": {"dueling": False},
    "GRU from zeros": {"memory": "gru", "stored_state": False},
    "no burn-in": {"burn_in": 0, "sequence_length": BURN_IN + T, "max_priority_share": 0.4},
    "layer norm, clipped": {"torso": "mlp", "layer_sizes": (8, 8), "max_grad_norm": 0.1},
}


class Client:
    """Keeps the priorities that are set."""

    def __init__(self):
        self.updates = []

    def update_priorities(self, table, keys, priorities):
        self.updates.append((table, keys.tolist(), priorities.tolist()))


def make_sample(builder, seed):
    """Random sequences and their weights; what masked rows hold is random, too, and so is the order."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(MASKS), generator=generator)
    mask = torch.tensor(MASKS, dtype=torch.float64)[order]

    def normal(*shape):
        return torch.randn(len(mask), *shape, generator=generator, dtype=torch.float64)

    discounts = torch.tensor([1.0, 1.0, 1.0, 0.6, 0.0], dtype=torch.float64)
    data = types.Trajectory(
        observation=normal(mask.shape[1] + 1, 3),
        action=torch.randint(scene.NUM_ACTIONS, mask.shape, generator=generator, dtype=torch.int32),
        reward=3.0 * normal(mask.shape[1]),
        discount=discounts[torch.randint(len(discounts), mask.shape, generator=generator)],
        mask=mask,
        extras=acting.BehaviourExtras(),
        state=tuple(normal(*spec.shape) for spec in builder.state_spec(SPEC)),
    )
    keys = (100 * seed + order).numpy().astype(np.uint64)
    info = replay.SampleInfo(
        key=keys,
        probability=np.array(PROBABILITIES)[order],
        table_size=np.full(len(order), 16),
        priority=np.ones(len(order)),
        times_sampled=np.ones(len(order), np.int32),
    )
    return scene.Sample(data, info), np.array(WEIGHTS)[order].tolist()


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_steps_are_those_of_the_reference(options):
    config = r2d2.R2D2Config(
        **{
            "memory_size": SIZE,
            "layer_sizes": (8,),
            "burn_in": BURN_IN,
            "sequence_length": T,
            "sequence_period": 2,
            "batch_size": len(MASKS),
            "n_step": 3,
            "discount": 0.9,
            "learning_rate": 0.05,
            "target_update_period": 2,
            "importance_exponent": 0.5,
            **options,
        }
    )
    builder = scene.with_descent(r2d2.R2D2Builder)(config)
    samples = [make_sample(builder, seed) for seed in range(NUM_STEPS)]
    client, references = Client(), []

    def make_reference(modules, generator):
        weights = [weights for _, weights in samples]
        references.append(reference.Reference(modules, generator, config=config, weights=weights))
        return references[0]

    scene.check_steps(
        builder,
        SPEC,
        make_reference,
        NUM_STEPS,
        make_sample=lambda spec, seed: samples[seed][0],
        client=client,
    )
    for (sample, _), update, expected in zip(samples, client.updates, references[0].priorities, strict=True):
        table, keys, priorities = update
        assert (table, keys) == ("replay", sample.info.key.tolist())
        assert priorities == pytest.approx(expected, rel=1e-9, abs=1e-9)
        learned = sample.data.mask[:, config.burn_in :].any(dim=1)
        assert [priority > 0.0 for priority in priorities] == learned.tolist()
