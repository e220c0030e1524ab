"""V-trace against rlax's numbers, the sums written out, and the targets it reduces to."""

import pytest
import torch

from minerva_acme import losses
from tests.losses.test_returns import random_rollout

Rollout = dict[str, torch.Tensor]


def stale_rollout(length: int, num_environments: int, seed: int = 0) -> Rollout:
    """A rollout of a policy that has changed since."""
    generator = torch.Generator().manual_seed(100 + seed)
    shape = (length, num_environments)
    return {
        **random_rollout(length, num_environments, seed),
        "log_prob_t": torch.randn(shape, generator=generator),
        "behaviour_log_prob_t": torch.randn(shape, generator=generator),
    }


def as_double(rollout: Rollout) -> Rollout:
    return {name: tensor.double() for name, tensor in rollout.items()}


def plain_vtrace(
    x: Rollout, *, lambda_: float, clip_rho: float, clip_advantage_rho: float, leak: float
) -> losses.RolloutTargets:
    """target_t = V_t + sum_k delta_k prod_{i = t..k-1} discount_i c_i, the sums written out."""
    length, num_environments = x["r_t"].shape
    target, advantage = x["v_t"].clone(), torch.zeros_like(x["v_t"])

    def at(name: str, t: int, e: int) -> float:
        return x[name][t, e].item()

    def ratio(t: int, e: int) -> float:
        return (x["log_prob_t"][t, e] - x["behaviour_log_prob_t"][t, e]).exp().item()

    def leaky(t: int, e: int, bound: float) -> float:
        return (1.0 - leak) * min(bound, ratio(t, e)) + leak * ratio(t, e)

    for e in range(num_environments):
        for t in reversed(range(length)):
            trace = 1.0
            for k in range(t, length):
                delta = at("r_t", k, e) + at("discount_t", k, e) * at("v_tp1", k, e) - at("v_t", k, e)
                target[t, e] += trace * leaky(k, e, clip_rho) * delta
                if at("last_t", k, e):
                    break
                trace *= at("discount_t", k, e) * lambda_ * leaky(k, e, 1.0)
            following = at("v_tp1", t, e)
            if t + 1 < length and not at("last_t", t, e):
                following = (1.0 - lambda_) * following + lambda_ * target[t + 1, e].item()
            error = at("r_t", t, e) + at("discount_t", t, e) * following - at("v_t", t, e)
            advantage[t, e] = min(clip_advantage_rho, ratio(t, e)) * error
    return losses.RolloutTargets(advantage, target)


# rlax 0.1.9 on jax 0.10.2, float64: vtrace_td_error_and_advantage and leaky_vtrace (for which alpha = 0.7).
VALUES = torch.tensor([[-0.65, -0.17, 1.66, 0.66, -1.64, -0.01, -0.62]], dtype=torch.float64).T
STALE = {
    "r_t": torch.tensor([[0.15, -1.61, 0.24, 0.24, 1.58, 0.32]], dtype=torch.float64).T,
    "discount_t": torch.tensor([[0.9, 0.9, 0.0, 0.9, 0.5, 0.9]], dtype=torch.float64).T,
    "v_t": VALUES[:-1],
    "v_tp1": VALUES[1:],
    "last_t": torch.tensor([[0.0, 0.0, 0.0, 0.0, 0.0, 1.0]], dtype=torch.float64).T,
    "log_prob_t": torch.tensor([[0.41, -1.19, 1.8, -1.53, 0.88, -0.26]], dtype=torch.float64).T,
    "behaviour_log_prob_t": torch.zeros(6, 1, dtype=torch.float64),
}


@pytest.mark.parametrize(
    ("settings", "target", "advantage"),
    [
        (
            {},
            [
                -0.338130144,
                -0.542366827,
                0.24,
                0.858864214,
                1.487100119,
                -0.185799761,
            ],
            [
                0.311869855,
                -0.372366827,
                -1.42,
                0.198864214,
                3.127100119,
                -0.175799761,
            ],
        ),
        (
            {"lambda_": 0.9, "clip_rho": 1.5, "clip_advantage_rho": 2.0},
            [
                -0.091340448,
                -0.678444998,
                -0.47,
                1.081410019,
                3.103390107,
                -0.185799761,
            ],
            [
                0.354342593,
                -0.508444998,
                -2.84,
                0.421410019,
                6.271780214,
                -0.175799761,
            ],
        ),
        (
            {"lambda_": 0.9, "clip_rho": 1.2, "leak": 0.3},
            [
                -0.665608315,
                -1.082560160,
                -2.109949819,
                1.111214340,
                3.273318036,
                -0.185799761,
            ],
            None,
        ),
    ],
)
def test_targets_are_those_of_rlax(settings, target, advantage) -> None:
    found = losses.vtrace(**STALE, **settings)
    torch.testing.assert_close(found.target[:, 0].tolist(), target, rtol=1e-6, atol=0.0)
    if advantage is not None:
        torch.testing.assert_close(found.advantage[:, 0].tolist(), advantage, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("length", [1, 2, 9])
@pytest.mark.parametrize(
    "settings",
    [
        {"lambda_": 1.0, "clip_rho": 1.0, "clip_advantage_rho": 1.0, "leak": 0.0},
        {"lambda_": 0.7, "clip_rho": 1.8, "clip_advantage_rho": 0.6, "leak": 0.0},
        {"lambda_": 0.9, "clip_rho": 0.5, "clip_advantage_rho": 3.0, "leak": 0.4},
    ],
)
def test_targets_are_the_sums_written_out(length, settings) -> None:
    rollout = as_double(stale_rollout(length, 6))
    torch.testing.assert_close(losses.vtrace(**rollout, **settings), plain_vtrace(rollout, **settings))


def test_an_unchanged_policy_gives_the_discounted_returns() -> None:
    rollout = as_double(stale_rollout(9, 6))
    found = losses.vtrace(**rollout | {"behaviour_log_prob_t": rollout["log_prob_t"]})
    expected = losses.return_advantages(**as_double(random_rollout(9, 6)))
    torch.testing.assert_close(found, expected)


def test_lambda_zero_weighs_one_step() -> None:
    rollout = as_double(stale_rollout(9, 6))
    found = losses.vtrace(**rollout, lambda_=0.0)
    one_step = losses.one_step_advantages(**as_double(random_rollout(9, 6)))
    rho_t = (rollout["log_prob_t"] - rollout["behaviour_log_prob_t"]).exp().clamp(max=1.0)
    torch.testing.assert_close(found.advantage, rho_t * one_step.advantage)
    torch.testing.assert_close(found.target, rollout["v_t"] + rho_t * one_step.advantage)


def test_without_a_bound_advantages_have_no_weights() -> None:
    rollout = as_double(stale_rollout(9, 6))
    weighted, found = losses.vtrace(**rollout), losses.vtrace(**rollout, clip_advantage_rho=None)
    ratio_t = (rollout["log_prob_t"] - rollout["behaviour_log_prob_t"]).exp()
    torch.testing.assert_close(ratio_t.clamp(max=1.0) * found.advantage, weighted.advantage)
    torch.testing.assert_close(found.target, weighted.target, rtol=0.0, atol=0.0)


def test_without_truncation_the_targets_expect_what_the_policy_would_get() -> None:
    """All sequences of actions in a random problem, a column each, weighed by the behaviour's probability."""
    length, num_actions, num_states, lambda_ = 4, 3, 5, 0.8
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    policy, behaviour = (draw(num_states, num_actions).log_softmax(dim=1) for _ in range(2))
    reward, value = draw(num_states, num_actions), draw(num_states)
    following = torch.randint(num_states, (num_states, num_actions), generator=generator)
    action_t = torch.cartesian_prod(*[torch.arange(num_actions)] * length).T  # [T, 81]
    state_t = torch.zeros(length + 1, num_actions**length, dtype=torch.int64)
    for t in range(length):
        state_t[t + 1] = following[state_t[t], action_t[t]]
    at = state_t[:-1], action_t
    rollout = {
        "r_t": reward[at],
        "discount_t": torch.full_like(reward[at], 0.9),
        "v_t": value[state_t[:-1]],
        "v_tp1": value[state_t[1:]],
        "last_t": torch.zeros_like(reward[at]),
    }
    on_policy = losses.gae(**rollout, lambda_=lambda_).target[0]
    found = losses.vtrace(
        **rollout, log_prob_t=policy[at], behaviour_log_prob_t=behaviour[at], lambda_=lambda_, leak=1.0
    ).target[0]
    drawn, wanted = behaviour[at].sum(dim=0).exp(), policy[at].sum(dim=0).exp()
    torch.testing.assert_close((drawn * found).sum(), (wanted * on_policy).sum())
    assert abs((drawn * on_policy).sum() - (wanted * on_policy).sum()) > 0.1  # and the plain ones do not


def test_actions_that_the_policy_never_takes_move_nothing() -> None:
    rollout = stale_rollout(9, 6)
    found = losses.vtrace(**rollout | {"log_prob_t": torch.full((9, 6), -1e4)})
    assert not found.advantage.any()
    torch.testing.assert_close(found.target, rollout["v_t"], rtol=0.0, atol=0.0)


def test_infinite_ratios_are_clipped() -> None:
    rollout = stale_rollout(9, 6)
    found = losses.vtrace(**rollout | {"behaviour_log_prob_t": torch.full((9, 6), -1e4)})
    expected = losses.return_advantages(**random_rollout(9, 6))
    torch.testing.assert_close(found, expected)


def test_no_episode_hears_of_the_next() -> None:
    rollout = stale_rollout(9, 1)
    rollout["last_t"] = torch.zeros(9, 1)
    rollout["last_t"][4] = 1.0
    other = {name: torch.cat([tensor[:5], tensor[5:] + 1.0]) for name, tensor in rollout.items()}
    other["last_t"] = rollout["last_t"]
    found, expected = losses.vtrace(**other), losses.vtrace(**rollout)
    torch.testing.assert_close(found.target[:5], expected.target[:5], rtol=0.0, atol=0.0)
    torch.testing.assert_close(found.advantage[:5], expected.advantage[:5], rtol=0.0, atol=0.0)


def test_no_gradient_flows() -> None:
    rollout = {name: tensor.requires_grad_() for name, tensor in stale_rollout(9, 6).items()}
    found = losses.vtrace(**rollout)
    assert not found.target.requires_grad
    assert not found.advantage.requires_grad


def test_inputs_are_not_changed() -> None:
    rollout = stale_rollout(9, 6)
    copies = {name: tensor.clone() for name, tensor in rollout.items()}
    losses.vtrace(**rollout, leak=0.5)
    assert all(torch.equal(rollout[name], copies[name]) for name in rollout)


@pytest.mark.parametrize("name", ["r_t", "v_tp1", "log_prob_t", "behaviour_log_prob_t"])
def test_a_wrong_shape_is_named(name) -> None:
    rollout = stale_rollout(9, 6)
    rollout[name] = rollout[name][:, 0]
    with pytest.raises(ValueError, match=f"`{name}`"):
        losses.vtrace(**rollout)


def test_the_value_that_the_targets_keep_is_that_of_the_clipped_policy() -> None:
    """One state and two actions: the fixed point of the value lies between behaviour's and policy's.

    V* weighs actions by min(clip b, pi) [Espeholt et al. 2018, eq. 3]: here (0.2, 0.3) -> (0.4, 0.6).
    """
    policy, behaviour, rewards = [0.7, 0.3], [0.2, 0.8], [1.0, 0.0]
    value = (0.4 * rewards[0] + 0.6 * rewards[1]) / (1.0 - 0.9)
    length = 2000
    actions = torch.arange(length) % 5 > 0  # action 0 in a fifth of the steps, as the behaviour has it
    probabilities = torch.tensor([policy, behaviour], dtype=torch.float64).log()
    v_t = torch.full((length, 1), value, dtype=torch.float64)
    found = losses.vtrace(
        r_t=torch.tensor(rewards, dtype=torch.float64)[actions.long()][:, None],
        discount_t=torch.full_like(v_t, 0.9),
        v_t=v_t,
        v_tp1=v_t,
        last_t=torch.zeros_like(v_t),
        log_prob_t=probabilities[0][actions.long()][:, None],
        behaviour_log_prob_t=probabilities[1][actions.long()][:, None],
        lambda_=0.0,
    )
    torch.testing.assert_close(found.target.mean().item(), value)
