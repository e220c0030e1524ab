"""Learners side by side equal one learner of the whole batch."""

import itertools

import numpy as np
import pytest
import torch
import tree

from minerva_acme import builders, counting, learners, testing
from minerva_acme.agents import impala, mpo, ppo, r2d2, sac, td3, vmpo
from tests import side_by_side

from . import transition_scene
from .mpo import scene as mpo_scene

BATCH, ENVIRONMENTS, STEPS = 6, 4, 10
OFF_POLICY = {"batch_size": BATCH, "samples_per_insert": 8.0, "min_replay_size": 6, "acceleration": "off"}
LAYERS = {"policy_layer_sizes": (8,), "critic_layer_sizes": (8, 8)}
ON_POLICY = {
    "acceleration": "off",
    "num_environments": ENVIRONMENTS,
    "rollout_steps": 5 * ENVIRONMENTS,
    "policy_layer_sizes": (8,),
    "value_layer_sizes": (8,),
    "learning_rate": 1e-2,
    "max_grad_norm": 0.5,
    "normalize_advantages": True,
}
MPO = {
    **OFF_POLICY,
    **LAYERS,
    "num_samples": 7,
    "retrace_mc_actions": 5,
    "normalize_observations": True,
    "policy_learning_rate": 1e-2,
    "critic_learning_rate": 1e-2,
    "max_grad_norm": 0.2,
    "target_policy_update_period": 3,
    "target_critic_update_period": 2,
}


class Scene:
    """An agent, and its batches in float64."""

    axis = 0  # of the shares in a batch
    whole = BATCH
    num_minibatches = 0

    def __init__(self, builder, spec, make_batch):
        self.builder, self.spec, self.make_batch = builder, spec, make_batch

    def learn(self, ranks, num_steps=STEPS, spoil=lambda step, batch: batch, builder=None):
        """Learns from the whole of each batch, or from a share; returns the learner and what it logs."""
        builder = builder or (self.builder if ranks is None else self.builder.for_learners(ranks.size))

        batches = [spoil(step, self.make_batch(step)) for step in range(num_steps)]
        logger = testing.FakeLogger()
        learner = builder.make_learner(
            builders.LearnerParts(
                networks=builder.make_networks(self.spec, torch.Generator().manual_seed(0)),
                dataset=(
                    transition_scene.Sample(side_by_side.rows(batch, ranks, self.axis)) for batch in batches
                ),
                spec=self.spec,
                counter=counting.Counter(),
                logger=logger,
                generator=torch.Generator().manual_seed(0),
                device=torch.device("cpu"),
                ranks=ranks,
            )
        )
        for module in learner._modules.values():
            module.double()
        with side_by_side.WholeNoise(ranks, self.whole, self.num_minibatches):
            for _ in range(num_steps):
                learner.step()
        return learner, logger.rows


def doubled(nest):
    return tree.map_structure(lambda x: x.double() if x.is_floating_point() else x, nest)


def make_sac():
    builder = sac.SACBuilder(sac.SACConfig(**OFF_POLICY, **LAYERS, learning_rate=1e-2))
    spec = transition_scene.make_spec()
    return Scene(
        builder, spec, lambda seed: transition_scene.make_batch(spec, seed, BATCH, dtype=torch.float64)
    )


def make_mpo(**changes):
    def make_batch(seed):
        # One share has many steps that did not happen, the other few.
        number = torch.tensor([1, 4, 1, 4, 4, 3]).roll(seed)[:, None]
        mask = (torch.arange(4) < number).double()
        return doubled(mpo_scene.make_trajectory(BATCH, 4, seed, mask=mask))

    builder = mpo.MPOBuilder(mpo.MPOConfig(**(MPO | changes)))
    return Scene(builder, transition_scene.make_spec(), make_batch)


@pytest.fixture
def make_on_policy(make_rollout, continuous_spec):
    def make(builder, num_minibatches=0):
        network = builder.make_networks(continuous_spec, torch.Generator().manual_seed(3))
        scene = Scene(
            builder,
            continuous_spec,
            lambda seed: doubled(make_rollout(builder, network, continuous_spec, seed)),
        )
        scene.axis, scene.whole, scene.num_minibatches = 1, ENVIRONMENTS, num_minibatches
        return scene

    return make


@pytest.fixture(params=["sac", "mpo", "ppo", "impala"])
def scene(request, make_on_policy):
    if request.param == "ppo":
        config = ppo.PPOConfig(**ON_POLICY, minibatch_size=10, num_epochs=4, target_kl=0.03)
        return make_on_policy(ppo.PPOBuilder(config), num_minibatches=2)
    if request.param == "impala":
        return make_on_policy(impala.IMPALABuilder(impala.IMPALAConfig(**ON_POLICY)))
    return {"sac": make_sac, "mpo": make_mpo}[request.param]()


def numbers(learner):
    """All that a learner saves that is a number, but its random state."""
    state = learner.save()
    return [x for x in tree.flatten([state["modules"], state["updates"]]) if isinstance(x, torch.Tensor)]


def assert_close(one, other):
    for a, b in zip(numbers(one), numbers(other), strict=True):
        torch.testing.assert_close(a.double(), b.double(), rtol=1e-8, atol=1e-10)


def test_two_learners_of_half_a_batch_equal_one_of_the_whole(scene, tmp_path):
    whole, expected = scene.learn(None)
    (first, rows), (second, _) = side_by_side.together(tmp_path / "ranks", scene.learn)
    assert_close(first, whole)
    assert all(torch.equal(a, b) for a, b in zip(numbers(first), numbers(second), strict=True))
    norms = [name for name in expected[0] if name.startswith("grad_norm")]
    assert norms and [row["skipped_batches"] for row in rows] == [0] * STEPS
    for row, wanted in zip(rows, expected, strict=True):  # the norm that gradients are clipped by
        assert [float(row[name]) for name in norms] == pytest.approx([float(wanted[name]) for name in norms])
    if "epochs" in expected[0]:  # the early stop is that of all
        assert [row["epochs"] for row in rows] == [row["epochs"] for row in expected]
        assert len({row["epochs"] for row in expected}) > 1
