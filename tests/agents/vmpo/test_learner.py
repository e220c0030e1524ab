import numpy as np
import pytest
import torch

from minerva_acme import distributions, learners, losses

SHARED = {
    "steps",
    "walltime",
    "skipped_batches",
    "learning_rate",
    "loss/network",
    *(f"grad_norm/{name}" for name in ("network", "alphas", "temperature")),
    "temperature",
    "alpha/mean",
    "kl/mean_rel",
    "policy/entropy",
    "policy/effective_sample_size",
    "policy/selected_share",
    "advantage/min",
    "advantage/max",
    *(f"loss/{name}" for name in ("temperature", "alpha_mean", "policy", "value")),
    *(f"value/{name}" for name in ("explained_variance", "mean", "target_mean")),
}
GAUSSIAN = {"alpha/stddev", "kl/stddev_rel", "loss/alpha_stddev", "policy/stddev_min", "policy/stddev_max"}


def test_a_step_reports_every_diagnostic(vmpo_agent, make_learner, continuous_spec):
    learner, _, rows = make_learner(vmpo_agent.builder(), continuous_spec)
    learner.step()
    assert set(rows[0]) == SHARED | GAUSSIAN
    assert all(np.isfinite(float(value)) for value in rows[0].values())
    assert float(rows[0]["policy/selected_share"]) == pytest.approx(9 / 16)  # floor(0.6 * 16)
    assert 1.0 <= float(rows[0]["policy/effective_sample_size"]) <= 9.0


def test_a_discrete_policy_has_one_kl(vmpo_agent, make_learner, discrete_spec):
    learner, _, rows = make_learner(vmpo_agent.builder(), discrete_spec)
    before = learner.save()["modules"]["duals"]
    learner.run(num_steps=2)
    assert set(rows[0]) == SHARED
    after = learner.save()["modules"]["duals"]
    assert {name.partition(".")[0] for name in before if not torch.equal(before[name], after[name])} == {
        "temperature",
        "alpha_mean",
    }


def test_the_temperature_moves_once_a_rollout_and_the_rest_in_every_m_step(
    vmpo_agent, make_learner, continuous_spec
):
    learner, _, _ = make_learner(vmpo_agent.builder(m_steps=5), continuous_spec)
    learner.run(num_steps=3)
    steps = {
        name: {int(state["step"]) for state in optimizer["state"].values()}
        for name, optimizer in learner.save()["updates"]["optimizers"].items()
    }
    assert steps == {"temperature": {3}, "alphas": {15}, "network": {15}}


@pytest.mark.parametrize(("epsilon", "rises"), [(1e-8, True), (1e3, False)])
def test_an_alpha_rises_where_its_kl_is_above_the_bound_and_falls_below(
    vmpo_agent, make_learner, continuous_spec, epsilon, rises
):
    builder = vmpo_agent.builder(
        epsilon_mean=epsilon, epsilon_stddev=epsilon, alpha_learning_rate=1e-2, learning_rate=1e-2, m_steps=10
    )
    learner, _, rows = make_learner(builder, continuous_spec)
    learner.run(num_steps=3)
    for name in ("mean", "stddev"):
        assert (float(rows[-1][f"kl/{name}_rel"]) > 1.0) == rises
        assert (float(rows[-1][f"alpha/{name}"]) > float(rows[0][f"alpha/{name}"])) == rises


@pytest.mark.parametrize(("epsilon", "rises"), [(1e-6, True), (10.0, False)])
def test_the_temperature_rises_where_the_weights_are_sharper_than_their_bound(
    vmpo_agent, make_learner, spec, epsilon, rises
):
    builder = vmpo_agent.builder(epsilon_temperature=epsilon, temperature_learning_rate=1e-2)
    learner, _, rows = make_learner(builder, spec)
    learner.run(num_steps=5)
    assert (float(rows[-1]["temperature"]) > float(rows[0]["temperature"])) == rises


def test_each_loss_trains_its_own_parameters_alone(vmpo_agent, make_learner, make_rollout, continuous_spec):
    builder = vmpo_agent.builder(m_steps=1)
    learner, network, _ = make_learner(builder, continuous_spec)
    learner.step()  # Before it, the KL is 0 and so is its gradient.
    groups = {
        "network": [*network.parameters()],
        "temperature": [*learner._duals.temperature.parameters()],
        "alphas": [*learner._duals.alpha_mean.parameters(), *learner._duals.alpha_stddev.parameters()],
    }
    everything = [parameter for group in groups.values() for parameter in group]
    rollout = make_rollout(builder, network, continuous_spec, seed=5)
    batch = learners.Batch(rollout, 1.0, estimates=learner.estimate(learner._preparer.prepare(rollout)))
    for name, trains in (("temperature", ["temperature"]), ("network", ["network", "alphas"])):
        loss = learner.losses[name](network, batch, None)
        gradients = torch.autograd.grad(loss.value, everything, allow_unused=True)
        trained = {id(p) for p, g in zip(everything, gradients, strict=True) if g is not None and g.any()}
        # All of its own, none of the others'.
        assert trained == {id(parameter) for each in trains for parameter in groups[each]}


def test_one_round_is_the_plain_one(vmpo_agent, make_learner, make_rollout, spec):
    """One M-step, by hand: temperature, alphas, then policy and value."""
    builder = vmpo_agent.builder(
        m_steps=1,
        normalize_observations=False,
        scale_rewards=False,
        learning_rate=1e-3,
        temperature_learning_rate=1e-2,
        alpha_learning_rate=1e-2,
    )
    plain = builder.make_networks(spec, torch.Generator().manual_seed(0))
    rollout = make_rollout(builder, plain, spec)
    learner, network, rows = make_learner(builder, spec, iter([rollout]))
    learner.step()

    with torch.no_grad():
        targets = losses.gae(
            r_t=rollout.reward,
            discount_t=0.98 * rollout.discount,
            v_t=plain.value(rollout.observation),
            v_tp1=plain.value(rollout.next_observation),
            last_t=rollout.last,
            lambda_=0.95,
        )
    advantage = targets.advantage.flatten()
    advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
    top = advantage.topk(9).indices  # floor(0.6 * 16); eta is 1
    weights = advantage[top].softmax(dim=0)
    raw = torch.tensor(1.0).expm1().log().requires_grad_()  # softplus of it is 1
    eta = torch.nn.functional.softplus(raw)
    temperature_loss = eta * (0.15 + (advantage[top] / eta).exp().mean().log())
    policy, value = plain(rollout.observation.flatten(0, 1))
    action = rollout.extras.raw_action.flatten(0, 1)
    log_prob = policy.log_prob(action)
    if not isinstance(policy, distributions.Categorical):
        log_prob = log_prob - torch.log1p(-torch.tanh(action).square()).sum(dim=1)  # bounds are -1 and 1
    # The KLs are 0, with gradient 0, before anything has moved.
    loss = -(weights * log_prob[top]).sum() + 0.5 * (value - targets.target.flatten()).square().mean()
    optimizer = torch.optim.Adam(plain.parameters(), lr=1e-3, eps=1e-8)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(plain.parameters(), 2.0)
    optimizer.step()
    assert float(rows[0]["loss/temperature"]) == pytest.approx(temperature_loss.item(), rel=1e-4)
    assert float(rows[0]["loss/policy"]) + float(rows[0]["loss/value"]) == pytest.approx(
        loss.item(), rel=1e-3
    )
    for mine, theirs in zip(network.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    temperature_loss.backward()
    moved = learner._duals.temperature().item() - 1.0
    assert moved == pytest.approx(-1e-2 * raw.grad.sign().item() * 0.632, rel=0.02)  # Adam's first step


def test_it_solves_a_bandit(vmpo_agent, run, bandit):
    result = run(
        vmpo_agent.builder(
            num_environments=4,
            rollout_steps=64,
            m_steps=8,
            learning_rate=1e-2,
            temperature_learning_rate=1e-2,
            alpha_learning_rate=1e-2,
            normalize_observations=False,
            scale_rewards=False,
        ),
        bandit,
        64 * 25,
    )
    assert result.after.mean > 0.98
