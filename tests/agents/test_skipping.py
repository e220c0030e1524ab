"""Beside `properties/test_learners.py`: what single agents do about numbers that are not finite."""

import itertools
import math

import pytest
import torch

from minerva_acme import testing
from minerva_acme.acceleration import array_ppo

from . import table
from .properties.test_learners import spoil

pytestmark = pytest.mark.promise("A batch that is not finite is skipped whole")

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(("wrong_call", "steps"), [(3, 3), (8, 7)])
def test_a_gradient_on_arrays_that_goes_wrong_makes_no_step(wrong_call, steps, caplog, monkeypatch, said):
    scene = table.Scene("ppo")
    compute, calls = array_ppo.loss_gradients, itertools.count(1)

    def compute_wrong(**inputs):
        found = compute(**inputs)
        if next(calls) == wrong_call:
            found.value[0] = NAN
        return found

    def steps_made():
        (optimizer,) = learner.save()["updates"]["optimizers"].values()
        return int(next(iter(optimizer["state"].values()))["step"])

    learner, rows = scene.make([scene.make_batch(seed) for seed in (1, 9, 2)])
    learner.step()
    before = steps_made()
    with monkeypatch.context() as patch:
        patch.setattr(array_ppo, "loss_gradients", compute_wrong)
        learner.step()
    assert steps_made() - before == steps and next(calls) > wrong_call
    learner.step()
    assert [row["skipped_batches"] for row in rows] == [0, 1, 1]
    assert "learner step 1 skipped: the gradients are not finite" in caplog.text
    assert "PPO's updates: arrays, with hand-written gradients" in said()
    leaves = torch.utils._pytree.tree_leaves(table.state_of(learner))
    assert all(leaf.isfinite().all() for leaf in leaves if isinstance(leaf, torch.Tensor))


@pytest.mark.parametrize("learner_scene", ["mpo"], indirect=True)
def test_targets_of_mpo_are_copied_in_a_skipped_step_too(learner_scene):
    bad = spoil(learner_scene.make_batch(9), "reward", NAN)
    learner, rows = learner_scene.make(
        [learner_scene.make_batch(1), bad], target_policy_update_period=1, target_critic_update_period=1
    )
    learner.run(num_steps=2)
    assert rows[-1]["skipped_batches"] == 1
    modules = learner.save()["modules"]
    for name in ("policy", "critic"):
        testing.assert_nests_equal(
            dict(modules[f"target_{name}"]), dict(modules[name]), "Targets must be those of the schedule."
        )


@pytest.mark.parametrize("learner_scene", ["ppo", "vmpo"], indirect=True)
@pytest.mark.parametrize("value", [-INF, 1e19])
def test_extreme_returns_are_left_out_of_the_statistics_alone(learner_scene, value, caplog):
    good = learner_scene.make_batch(9)
    bad = spoil(good, "return_so_far", value)
    learner, rows = learner_scene.make([good, bad, bad, good])
    learner.run(num_steps=4)
    assert [row["skipped_batches"] for row in rows] == [0, 0, 0, 0]
    statistics = learner.save()["modules"]["return_norm"]
    assert round(statistics["count"].item()) == 4 * 16 - 2
    kept = torch.cat(
        [good.return_so_far.flatten(), *2 * [bad.return_so_far.flatten()], good.return_so_far[0]]
    )
    assert statistics["var"].item() < 2.0 * kept[kept.abs() < 100.0].square().max().item()
    warnings = [record.message for record in caplog.records if "return_so_far" in record.message]
    assert len(warnings) == 1  # and not one for each rollout
    assert warnings[0].startswith("1 rows of `return_so_far` are not finite or beyond 1e+15; its running")
    assert "Clip extreme rewards" in warnings[0]


@pytest.mark.parametrize("learner_scene", ["ppo", "vmpo"], indirect=True)
@pytest.mark.parametrize("field", ["observation", "return_so_far"])
def test_a_number_that_blinds_a_normaliser_is_warned_of_once(learner_scene, field, caplog):
    good = learner_scene.make_batch(9)
    blinding = spoil(good, field, 1e9)
    learner, rows = learner_scene.make([good, good, blinding, good])
    learner.run(num_steps=2)
    assert "running standard deviation" not in caplog.text
    learner.run(num_steps=2)
    assert rows[-1]["skipped_batches"] == 0
    warnings = [record.message for record in caplog.records if "running standard deviation" in record.message]
    assert len(warnings) == 1
    assert f"standard deviation of `{field}`" in warnings[0]
    assert "close to 0 from now on. Clip extreme" in warnings[0]
