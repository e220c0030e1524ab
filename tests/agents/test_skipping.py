"""One rule for all learners: a batch that is not finite is learned from not at all.

Whatever is not finite, and however late it shows, all that a learner step changes is as it was before.
"""

import copy
import itertools
import math
import re

import pytest
import torch

from minerva_acme import testing, types
from minerva_acme.acceleration import array_ppo

NAN, INF = math.nan, math.inf


def spoil(batch, field, value):
    """The batch with one number replaced, of the third step of the first sequence or environment."""
    index = (2, 0) if isinstance(batch, types.Rollout) else (0, 2)
    return _replace(batch, field.split("."), index, value)


def _replace(nest, path, index, value):
    name, *rest = path
    if rest:
        return nest._replace(**{name: _replace(getattr(nest, name), rest, index, value)})
    spoilt = getattr(nest, name).clone()
    spoilt[index + (0,) * (spoilt.ndim - 2)] = value
    return nest._replace(**{name: spoilt})


def state_of(learner):
    """All that a learner step changes but for the counts and what was drawn."""
    state = learner.save()
    return {"modules": state["modules"], "optimizers": state["updates"]["optimizers"]}


def assert_only_whole_steps(scene, message, steps, caplog, change, **config):
    """Lets a learner meet a batch of which one gradient goes wrong.

    Args:
        steps: The number of steps that each optimiser still makes, in words.
        change: Of a learner, returns what makes the gradient wrong, which returns what makes it right again.
    """

    def steps_made():
        return {
            name: int(next(iter(each["state"].values()))["step"])
            for name, each in state_of(learner)["optimizers"].items()
        }

    learner, rows = scene.make([scene.make_batch(seed) for seed in (1, 9, 2)], **config)
    spoil_now = change(learner)
    learner.step()
    before = steps_made()
    undo = spoil_now()
    learner.step()
    undo()
    made = {name: number - before[name] for name, number in steps_made().items()}
    assert ", ".join(f"{name} {number}" for name, number in sorted(made.items())) == steps
    assert rows[-1]["skipped_batches"] == 1
    assert re.search(f"learner step 1 skipped: the {message} are not finite", caplog.text)
    learner.step()
    assert rows[-1]["skipped_batches"] == 1
    assert all(
        leaf.isfinite().all()
        for leaf in torch.utils._pytree.tree_leaves(state_of(learner))
        if isinstance(leaf, torch.Tensor)
    )


def assert_leaves_no_trace(scene, bad, message, caplog, **config):
    """Lets a learner meet a batch between good ones, beside one that never meets it."""
    good, better, best = (scene.make_batch(seed) for seed in (1, 2, 3))
    learner, rows = scene.make([good, bad, better, best], **config)
    other, _ = scene.make([good, better, best], **config)
    learner.step()
    other.step()
    before = state_of(learner)
    testing.assert_nests_equal(before, state_of(other), "Both must have learned the same so far.")
    learner.step()
    assert rows[-1]["skipped_batches"] == 1
    assert rows[-1].keys() <= {"steps", "walltime", "skipped_batches", "learning_rate"}
    assert re.search(f"learner step 1 skipped: the {message} are (not finite|as large as)", caplog.text)
    testing.assert_nests_equal(state_of(learner), before, "A skipped batch must leave no trace.")
    if other.generator is not None:
        other.generator.set_state(learner.generator.get_state())
    for _ in range(2):
        learner.step()
        other.step()
        testing.assert_nests_equal(state_of(learner), state_of(other), "The next must be learned as ever.")
    assert not all(
        torch.equal(now, then)
        for now, then in zip(
            torch.utils._pytree.tree_leaves(state_of(learner)["modules"]),
            torch.utils._pytree.tree_leaves(before["modules"]),
            strict=True,
        )
    )
    assert [row["skipped_batches"] for row in rows] == [0, 1, 1, 1]


# What each learner says of a field that is not finite; fields that it does not read are missing.
POISON = {
    "mpo": {
        "reward": "rewards",
        "action": "actions",
        "observation": "observations",
        "discount": "discounts",
        "extras.log_prob": "critic targets",
        "extras.raw_action": "critic targets",
    },
    "ppo": {
        "reward": "rewards",
        "observation": "observations",
        "next_observation": "next observations",
        "discount": "discounts",
        "extras.log_prob": "recorded log-probabilities",
        "extras.raw_action": "recorded actions",
    },
    "vmpo": {
        "reward": "rewards",
        "observation": "observations",
        "next_observation": "next observations",
        "discount": "discounts",
        "extras.raw_action": "recorded actions",
        "extras.parameters.mean": r"recorded policies.*",
        "extras.parameters.log_std": r"recorded policies.*",
    },
}


def numbers_for(field):
    if field.startswith("extras."):  # what was recorded of the policy may be infinite and right
        return [NAN]
    # One function looks at all fields; it tells numbers that are not finite from those that are too large.
    return [NAN, -INF, -1e22] if field == "reward" else [NAN]


@pytest.mark.parametrize(
    ("learner_scene", "field", "value", "message"),
    [
        (name, field, value, message)
        for name, fields in POISON.items()
        for field, message in fields.items()
        for value in numbers_for(field)
    ],
    indirect=["learner_scene"],
)
def test_what_a_batch_holds_is_checked(learner_scene, field, value, message, caplog):
    bad = spoil(learner_scene.make_batch(9), field, value)
    assert_leaves_no_trace(learner_scene, bad, message, caplog)
    # The field by its path in the batch and the way out, which is said once.
    (skipped,) = (record.message for record in caplog.records if "skipped" in record.message)
    assert re.search(rf"\(`{re.escape(field)}\[[0-9, ]+\]` of the batch is ", skipped)
    assert f" of the batch is {value:g})" in skipped
    assert "Clip extreme rewards and observations with np.clip" in skipped


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("learner_scene", ["mpo"], indirect=True)
def test_every_optimiser_of_mpo_is_as_before(learner_scene, optimizer, caplog):
    bad = spoil(learner_scene.make_batch(9), "reward", NAN)
    assert_leaves_no_trace(learner_scene, bad, "rewards", caplog, optimizer=optimizer)


# A gradient that is not finite: the parameter, the call of its hook, the message, and the steps that remain.
LATE = {
    "mpo": {
        "the critic": (
            lambda learner: learner.networks.online.critic.head.weight,
            1,
            "gradients of the critic",
            "critic 0, duals 1, policy 3",
        ),
        "the duals": (
            lambda learner: learner.networks.duals.alpha_mean.raw,
            1,
            "gradients of the duals",
            "critic 1, duals 0, policy 3",
        ),
        "the second M-step": (
            lambda learner: learner.networks.online.policy.mean_head.weight,
            2,
            "gradients of the policy",
            "critic 1, duals 1, policy 2",
        ),
        "the last M-step": (
            lambda learner: learner.networks.online.policy.mean_head.weight,
            3,
            "gradients of the policy",
            "critic 1, duals 1, policy 2",
        ),
    },
    "ppo": {
        "the third minibatch": (
            lambda learner: learner.network.value_head.weight,
            3,
            "gradients",
            "network 3",
        ),
        "the last epoch": (
            lambda learner: learner.network.value_head.weight,
            8,
            "gradients",
            "network 7",
        ),
    },
    "vmpo": {
        "the temperature": (
            lambda learner: learner._duals.temperature.raw,
            1,
            "gradients of the temperature",
            "alphas 3, network 3, temperature 0",
        ),
        "the last alphas": (
            lambda learner: learner._duals.alpha_mean.raw,
            3,
            "gradients of the alphas",
            "alphas 2, network 3, temperature 1",
        ),
        "the last M-step": (
            lambda learner: learner.network.value_head.weight,
            3,
            "gradients of the network",
            "alphas 3, network 2, temperature 1",
        ),
    },
}


@pytest.mark.parametrize(
    ("learner_scene", "where"),
    [(name, where) for name, places in LATE.items() for where in places],
    indirect=["learner_scene"],
)
def test_a_gradient_that_goes_wrong_makes_no_step(learner_scene, where, caplog):
    find, wrong_call, message, steps = LATE[learner_scene.name][where]

    def change(learner):
        calls = itertools.count(1)
        is_armed = False

        def hook(gradient):
            return torch.full_like(gradient, NAN) if is_armed and next(calls) == wrong_call else gradient

        find(learner).register_hook(hook)

        def arm():
            nonlocal is_armed
            is_armed = True

            def disarm():
                nonlocal is_armed
                is_armed = False
                assert next(calls) > wrong_call  # it was reached

            return disarm

        return arm

    config = {} if learner_scene.name == "ppo" else {"m_steps": 3}
    assert_only_whole_steps(learner_scene, message, steps, caplog, change, **config)


@pytest.mark.parametrize("learner_scene", ["ppo"], indirect=True)
@pytest.mark.parametrize(("wrong_call", "steps"), [(3, "network 3"), (8, "network 7")])
def test_a_gradient_on_arrays_that_goes_wrong_makes_no_step(
    learner_scene, wrong_call, steps, caplog, monkeypatch, said
):
    compute, calls = array_ppo.loss_gradients, itertools.count(1)

    def compute_wrong(**inputs):
        found = compute(**inputs)
        if next(calls) == wrong_call:
            found.value[0] = NAN
        return found

    def change(learner):
        def arm():
            monkeypatch.setattr(array_ppo, "loss_gradients", compute_wrong)
            return lambda: monkeypatch.setattr(array_ppo, "loss_gradients", compute)

        return arm

    assert_only_whole_steps(learner_scene, "gradients", steps, caplog, change)
    assert "PPO's updates: arrays, with hand-written gradients" in said()
    assert next(calls) > wrong_call


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
def test_extreme_returns_are_left_out_of_the_statistics_and_the_rollout_is_learned_from(
    learner_scene, value, caplog
):
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


def test_too_many_in_a_row_are_an_error_and_a_good_one_in_between_is_none(learner_scene):
    good = learner_scene.make_batch(1)
    bad = spoil(learner_scene.make_batch(9), "reward", NAN)
    learner, rows = learner_scene.make([bad, bad, good, bad, bad, bad], max_skipped_batches=2)
    learner.run(num_steps=5)
    assert [row["skipped_batches"] for row in rows] == [1, 2, 2, 3, 4]
    before = copy.deepcopy(state_of(learner))
    with pytest.raises(
        FloatingPointError,
        match=r"the rewards are not finite \(`reward\[[02], [02]\]` of the batch is nan\), 3 learner steps "
        r"in a row .*Training has diverged: .* Clip extreme rewards and observations with np.clip",
    ):
        learner.step()
    testing.assert_nests_equal(state_of(learner), before, "The last batch must leave no trace either.")


def test_counts_of_skipped_batches_are_restored(learner_scene):
    bad = spoil(learner_scene.make_batch(9), "reward", NAN)
    learner, _ = learner_scene.make([bad], max_skipped_batches=1)
    other, rows = learner_scene.make([learner_scene.make_batch(1), bad, bad], max_skipped_batches=1)
    learner.step()
    other.restore(testing.through_a_file(learner.save()))
    other.run(num_steps=2)
    assert [row["skipped_batches"] for row in rows] == [1, 2]
    with pytest.raises(FloatingPointError, match="2 learner steps in a row"):
        other.step()
