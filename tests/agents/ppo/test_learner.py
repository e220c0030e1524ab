import dataclasses

import numpy as np
import pytest
import torch

from minerva_acme import losses
from tests.closeness import assert_close_to_norm


def test_a_step_reports_every_diagnostic(ppo_agent, make_learner, spec):
    learner, _, rows = make_learner(ppo_agent.builder(), spec)
    learner.step()
    assert set(rows[0]) == {
        "steps",
        "walltime",
        "skipped_batches",
        "learning_rate",
        "epochs",
        "grad_norm/network",
        *(f"loss/{name}" for name in ("network", "policy", "value")),
        *(f"policy/{name}" for name in ("entropy", "approx_kl", "approx_kl_first", "clip_fraction")),
        *(f"value/{name}" for name in ("explained_variance", "mean", "target_mean")),
    }
    assert all(np.isfinite(float(value)) for value in rows[0].values())


def test_the_kl_is_logged_relative_to_its_bound_where_there_is_one(ppo_agent, make_learner, spec):
    learner, _, rows = make_learner(ppo_agent.builder(target_kl=0.5, learning_rate=0.01), spec)
    learner.step()
    assert float(rows[0]["kl/approx_rel"]) == pytest.approx(float(rows[0]["policy/approx_kl"]) / 0.5)
    assert float(rows[0]["kl/approx_rel"]) > 0.0


@pytest.mark.parametrize(
    "change", [{"entropy_coef": 10.0}, {"clip_ratio": 1e-6}, {"value_coef": 100.0}, {"num_epochs": 1}]
)
@pytest.mark.parametrize("acceleration", ["auto", "off"])
def test_a_config_that_is_replaced_during_a_run_is_the_one_that_trains(
    ppo_agent, make_learner, continuous_spec, acceleration, change
):
    def weights(*changes):
        builder = ppo_agent.builder(acceleration=acceleration, num_epochs=2, minibatch_size=4)
        learner, network, _ = make_learner(builder, continuous_spec)
        for each in changes:
            learner.config = dataclasses.replace(learner.config, **each)
            learner.step()
        return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])

    assert not torch.allclose(weights({}, change), weights({}, {}), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("minibatch_size", "sizes"), [(4, [4, 4, 4, 4]), (5, [6, 5, 5]), (16, [16])])
def test_minibatches_hold_every_sample_once_an_epoch(
    ppo_agent, make_learner, make_rollout, continuous_spec, minibatch_size, sizes
):
    builder = ppo_agent.builder(minibatch_size=minibatch_size, num_epochs=3)
    behaviour = builder.make_networks(continuous_spec, torch.Generator().manual_seed(0))
    rollout = make_rollout(builder, behaviour, continuous_spec)
    learner, network, _ = make_learner(builder, continuous_spec, iter([rollout]))
    seen = []
    network.policy_torso.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].clone()))
    learner.step()
    assert [len(rows) for rows in seen] == sizes * 3
    epochs = [torch.cat(seen[i : i + len(sizes)]) for i in range(0, len(seen), len(sizes))]
    everything = epochs[0].unique(dim=0)
    assert len(everything) == 16
    for epoch in epochs:
        assert torch.equal(epoch.unique(dim=0), everything)
    # In another order each time, though.
    assert not torch.equal(epochs[0], epochs[1]) and not torch.equal(epochs[1], epochs[2])


def test_an_epoch_beyond_the_kl_bound_is_the_last(ppo_agent, make_learner, continuous_spec):
    for target_kl, expected in ((1e-9, 1), (1e9, 6), (0.0, 6), (None, 6)):
        builder = ppo_agent.builder(target_kl=target_kl, num_epochs=6, learning_rate=1e-2)
        learner, _, rows = make_learner(builder, continuous_spec)
        learner.step()
        assert rows[0]["epochs"] == expected
        assert float(rows[0]["policy/approx_kl"]) > 1e-9


def test_the_bound_is_looked_at_after_whole_epochs_and_not_before(ppo_agent, make_learner, continuous_spec):
    """Between none and all epochs there is a bound that stops in the middle."""
    kls = []
    for epochs in range(1, 7):
        builder = ppo_agent.builder(num_epochs=epochs, learning_rate=3e-3, minibatch_size=16)
        learner, _, rows = make_learner(builder, continuous_spec)
        learner.step()
        kls.append(float(rows[0]["policy/approx_kl"]))
    assert kls == sorted(kls)
    bound = (kls[2] + kls[3]) / 2
    builder = ppo_agent.builder(num_epochs=6, learning_rate=3e-3, minibatch_size=16, target_kl=bound)
    learner, _, rows = make_learner(builder, continuous_spec)
    learner.step()
    assert rows[0]["epochs"] == 4
    assert float(rows[0]["policy/approx_kl"]) == pytest.approx(kls[3])


def test_one_gradient_step_is_the_plain_one(ppo_agent, make_learner, make_rollout, spec):
    """One epoch of one minibatch: the clipped surrogate at ratio 1, by hand."""
    builder = ppo_agent.builder(
        num_epochs=1,
        minibatch_size=16,
        normalize_observations=False,
        scale_rewards=False,
        anneal_learning_rate=False,
        max_grad_norm=0.1,
        entropy_coef=0.01,
        adam_epsilon=1e-5,
        learning_rate=1e-3,
    )
    plain = builder.make_networks(spec, torch.Generator().manual_seed(0))
    rollout = make_rollout(builder, plain, spec)
    learner, network, rows = make_learner(builder, spec, iter([rollout]))
    learner.step()

    observation = rollout.observation.flatten(0, 1)
    with torch.no_grad():
        v_t = plain.value(rollout.observation)
        targets = losses.gae(
            r_t=rollout.reward,
            discount_t=0.99 * rollout.discount,
            v_t=v_t,
            v_tp1=plain.value(rollout.next_observation),
            last_t=rollout.last,
            lambda_=0.95,
        )
        advantage = targets.advantage.flatten()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy, value = plain(observation)
    ratio = (
        policy.log_prob(rollout.extras.raw_action.flatten(0, 1)) - rollout.extras.log_prob.flatten()
    ).exp()
    loss = -(ratio * advantage).mean()
    loss = loss + 0.5 * 0.5 * (value - targets.target.flatten()).square().mean()
    loss = loss - 0.01 * policy.entropy().mean()
    optimizer = torch.optim.Adam(plain.parameters(), lr=1e-3, eps=1e-5)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
    optimizer.step()
    assert float(rows[0]["loss/network"]) == pytest.approx(loss.item(), rel=1e-4)
    assert float(rows[0]["grad_norm/network"]) == pytest.approx(norm.item(), rel=1e-4)
    for mine, theirs in zip(network.parameters(), plain.parameters(), strict=True):
        assert_close_to_norm(mine, theirs)


def test_it_solves_a_bandit(ppo_agent, run, bandit):
    result = run(
        ppo_agent.builder(
            num_environments=4,
            rollout_steps=64,
            minibatch_size=16,
            num_epochs=4,
            learning_rate=1e-2,
            anneal_learning_rate=False,
            normalize_observations=False,
            scale_rewards=False,
        ),
        bandit,
        64 * 25,
    )
    assert result.after.mean > 0.98
