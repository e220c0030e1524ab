import dataclasses
import itertools
from concurrent import futures

import numpy as np
import pytest
import torch
import tree

from minerva_acme import testing
from minerva_acme.acceleration import choice, cpu, parallel
from minerva_acme.agents import mpo
from minerva_acme.agents.mpo import targets
from minerva_acme.learners import finite
from tests.closeness import assert_close_to_norm

from .scene import SMALL, Sample, losses_of, make_learner, make_trajectory, repeat


@pytest.fixture
def multiplies_bfloat16(monkeypatch):
    """As if the CPU had instructions for bfloat16: torch emulates them where it has none."""
    monkeypatch.setattr(cpu, "multiplies_bfloat16", lambda: True)


def states_equal(one, other):
    tree.assert_same_structure(one, other)
    return all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        for a, b in zip(tree.flatten(one), tree.flatten(other), strict=True)
    )


@pytest.mark.parametrize("signal", [1e6, np.nan])
@pytest.mark.parametrize("loss_steps", ["first", "all"])
@pytest.mark.parametrize("name", ["retrace", "n_step", "one_step"])
def test_what_stands_in_padding_changes_nothing(spec, name, loss_steps, signal):
    target = {
        "retrace": targets.retrace(lambda_=0.95, num_actions=3),
        "n_step": targets.n_step(num_actions=3),
        "one_step": targets.one_step(num_actions=3),
    }[name]
    clean = make_trajectory()
    mask = torch.ones(4, 5)
    mask[0, 2:] = 0.0
    mask[1, 4:] = 0.0

    def spoilt(leaf, value=signal):
        leaf = leaf.clone()
        leaf[mask == 0] = value
        return leaf

    clean = clean._replace(mask=mask)
    dirty = clean._replace(
        action=spoilt(clean.action, 1e6),  # the critic sees it, whose gradient a nan would reach
        reward=spoilt(clean.reward),
        discount=spoilt(clean.discount),
        extras=tree.map_structure(spoilt, clean.extras),
    )
    states = []
    for trajectory in (clean, dirty):
        config = dataclasses.replace(SMALL, critic_loss_steps=loss_steps)
        learner, rows = make_learner(spec, repeat(trajectory), config, target)
        learner.run(num_steps=2)
        states.append(learner.save())
        assert rows[-1]["skipped_batches"] == 0
    assert states_equal(*states)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.usefixtures("multiplies_bfloat16")
def test_with_a_target_rate_both_targets_move_that_far_at_every_step(spec, precision):
    config = dataclasses.replace(
        SMALL,
        target_rate=0.25,
        target_precision=precision,
        critic_learning_rate=0.01,
        policy_learning_rate=0.01,
    )
    batches = (Sample(make_trajectory(seed=seed)) for seed in itertools.count())
    learner, _ = make_learner(spec, batches, config)
    features = torch.randn(7, 3, generator=torch.Generator().manual_seed(1))
    actions = torch.rand(5, 7, 2, generator=torch.Generator().manual_seed(2)) * 2.0 - 1.0
    for num_steps in range(4):
        before = learner.save()["modules"]
        learner.step()
        after = learner.save()["modules"]
        for name in ("policy", "critic"):
            far = 0.0
            for key, online in before[name].items():
                old = before[f"target_{name}"][key]
                torch.testing.assert_close(after[f"target_{name}"][key], old + 0.25 * (online - old))
                far += (online - old).abs().sum()
            assert (far > 0.0) == (num_steps > 0)
        # What the E-step and the critic's targets are computed with is what has moved.
        found, plain = (
            losses_of(learner).target_q(features, actions),
            losses_of(learner).plain_target_q(features, actions),
        )
        torch.testing.assert_close(found, plain, rtol=1e-5 if precision == "float32" else 0.02, atol=1e-3)


def test_the_policy_moves_towards_the_better_action(spec):
    """Reward is the action's first dimension: its mean must rise, the KL staying near its bound."""

    def batches():
        seed = 0
        while True:
            trajectory = make_trajectory(batch_size=64, length=1, seed=seed)
            reward = trajectory.action[:, :, 0]
            yield Sample(data=trajectory._replace(reward=reward))
            seed += 1

    config = dataclasses.replace(
        SMALL,
        discount=0.0,
        critic_learning_rate=3e-3,
        policy_learning_rate=3e-3,
        epsilon_mean=0.05,
        init_log_temperature=0.0,
        init_log_alpha_mean=0.0,
        target_policy_update_period=10,
        target_critic_update_period=10,
    )
    learner, rows = make_learner(spec, batches(), config, targets.one_step(num_actions=1))
    observation = torch.randn(32, 3, generator=torch.Generator().manual_seed(5))
    before = learner.networks.online.policy(observation).mean.mean(dim=0)
    for _ in range(80):
        learner.step()
    after = learner.networks.online.policy(observation).mean.mean(dim=0)
    assert after[0] > before[0] + 0.5
    assert np.mean([float(row["kl/mean_rel"]) for row in rows[40:]]) < 3.0


@pytest.mark.parametrize("critic_loss_steps", ["first", "all"])
@pytest.mark.usefixtures("threads_are_given_back")
def test_more_threads_reproduce_training_and_change_it_by_rounding_alone(spec, critic_loss_steps):
    config = dataclasses.replace(SMALL, critic_loss_steps=critic_loss_steps)
    states = []
    for num_threads in (1, 2, 2):
        torch.set_num_threads(num_threads)
        states.append(learned_state(spec, config)[0])
        assert torch.get_num_threads() == num_threads
    one, two, two_again = states
    assert states_equal(two, two_again)
    leaves = zip(tree.flatten(one["modules"]), tree.flatten(two["modules"]), strict=True)
    for ours, theirs in leaves:
        assert_close_to_norm(ours, theirs)


@pytest.mark.usefixtures("threads_are_given_back")
def test_networks_that_share_parameters_or_draw_are_updated_one_after_the_other(spec, monkeypatch):
    torch.set_num_threads(2)
    monkeypatch.setattr(choice, "_TINY_UPDATE", 0)
    together = []
    monkeypatch.setattr(parallel, "run_together", lambda *_: together.append(1) or ({}, {}))
    plain, shared, drawing = (mpo.make_networks(spec, SMALL, torch.Generator()) for _ in range(3))
    shared.critic.register_parameter("temperature", next(shared.policy.parameters()))
    for network in (drawing.policy, drawing.critic):
        network.torso.append(torch.nn.Dropout(0.5))
    for networks, expected in ((plain, 1), (shared, 0), (drawing, 0)):
        together.clear()
        learner, _ = make_learner(spec, repeat(make_trajectory()), networks=networks)
        learner.run(num_steps=2)  # the first one shows whether anything is drawn
        assert len(together) == expected


def learned_state(spec, config, num_steps=3):
    batches = (Sample(make_trajectory(seed=seed)) for seed in itertools.count())
    learner, rows = make_learner(spec, batches, config)
    for _ in range(num_steps):
        learner.step()
    return learner.save(), rows


@pytest.mark.usefixtures("multiplies_bfloat16")
def test_bfloat16_is_of_products_alone_and_the_log_says_how_far_values_are_apart(spec, said):
    _, rows = learned_state(spec, dataclasses.replace(SMALL, target_precision="bfloat16"))
    assert any(line.startswith("target critic: bfloat16, ") for line in said())
    assert all(0.0 < float(row["q/spread_rel"]) < 10.0 for row in rows)


@pytest.mark.usefixtures("multiplies_bfloat16")
def test_values_too_close_for_bfloat16_are_warned_of(spec, caplog):
    config = dataclasses.replace(SMALL, target_precision="bfloat16")
    networks = mpo.make_networks(spec, config, torch.Generator().manual_seed(0))
    torch.nn.init.constant_(networks.critic.head.bias, 1e4)
    learner, _ = make_learner(spec, repeat(make_trajectory()), config, networks=networks)
    learner.step()
    learner.step()
    assert caplog.text.count("too little for bfloat16") == 1
    assert "Set `target_precision` to float32." in caplog.text


def test_config_says_which_precision():
    with pytest.raises(ValueError, match="`target_precision` must be one of .*'bfloat16'.*got 'float16'"):
        mpo.MPOConfig(target_precision="float16")


def test_a_step_reads_what_goes_in_and_each_gradient_before_it_changes_anything(spec, monkeypatch):
    learner, _ = make_learner(spec, repeat(make_trajectory()))
    before, reads, read = learner.save()["modules"], [], finite.read
    monkeypatch.setattr(finite, "_is_surely_finite", lambda tensor: False)  # as of tensors on a GPU

    def seen(tensor):
        now = learner.save()["modules"]
        reads.append([states_equal(now[name], before[name]) for name in ("critic", "duals", "policy")])
        return read(tensor)

    monkeypatch.setattr(finite, "read", seen)
    learner.step()
    unmoved = [True, True, True]
    assert reads == [unmoved, unmoved, [False, True, True], [False, False, True]]


def test_a_sync_of_target_networks_is_part_of_its_step(spec):
    asked, target = [], targets.one_step(num_actions=3)

    def ask(*arguments):
        if len(asked) < 3:
            asked.append(pool.submit(learner.poll_variables, ["target_policy", "target_critic"]))
            assert not asked[-1].done()
        return target(*arguments)

    config = dataclasses.replace(SMALL, target_policy_update_period=2, target_critic_update_period=2)
    learner, _ = make_learner(spec, repeat(make_trajectory()), config, ask)
    served = []
    with futures.ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            learner.step()  # the third one syncs, then asks
            served.append(learner.get_variables(["target_policy", "target_critic"]))
            version, values = asked[-1].result(20.0)
            assert version == len(served)
            testing.assert_nests_equal(values, served[-1], "It must be what the step left.")
    assert all(any((old[key] != new[key]).any() for key in old) for old, new in zip(*served[1:], strict=True))
