"""Rollout targets against numbers derived by hand, sums written out, and the targets they reduce to."""

import hypothesis
import pytest
import torch
from hypothesis import strategies

from minerva_acme import losses

Rollout = dict[str, torch.Tensor]


def random_rollout(length: int, num_environments: int, seed: int = 0) -> Rollout:
    """Steps with terminals and truncations anywhere, `v_tp1` that of the next step where there is one."""
    generator = torch.Generator().manual_seed(seed)
    shape = (length, num_environments)
    terminal = torch.rand(shape, generator=generator) < 0.15
    last_t = (terminal | (torch.rand(shape, generator=generator) < 0.15)).float()
    last_t[-1] = 1.0
    v_t = torch.randn(shape, generator=generator)
    v_tp1 = torch.where(last_t > 0, torch.randn(shape, generator=generator), v_t.roll(-1, dims=0))
    return {
        "r_t": torch.randn(shape, generator=generator),
        "discount_t": 0.9 * (~terminal).float(),
        "v_t": v_t,
        "v_tp1": v_tp1,
        "last_t": last_t,
    }


def without_v_t(rollout: Rollout) -> Rollout:
    return {name: tensor for name, tensor in rollout.items() if name != "v_t"}


def plain_lambda_returns(rollout: Rollout, lambda_: float) -> torch.Tensor:
    """Every step's n-step returns for n = 1..N, weighed (1 - lambda) lambda^{n-1}, the last lambda^{N-1}."""
    r_t, discount_t, v_tp1 = (rollout[name].double() for name in ("r_t", "discount_t", "v_tp1"))
    returns = torch.zeros_like(r_t)
    length, num_environments = r_t.shape
    for e in range(num_environments):
        for t in range(length):
            total, discount, weight = 0.0, 1.0, 1.0
            for k in range(t, length):
                total += discount * r_t[k, e].item()
                discount *= discount_t[k, e].item()
                n_step = total + discount * v_tp1[k, e].item()
                if rollout["last_t"][k, e] > 0:
                    break
                returns[t, e] += weight * (1.0 - lambda_) * n_step
                weight *= lambda_
            returns[t, e] += weight * n_step
    return returns.float()


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


# Values.


def test_returns_are_those_derived_by_hand() -> None:
    # Two episodes: one truncated after two steps, one that the rollout's end cuts after one.
    # G_2 = 3 + 0.5 * 8 = 7;  G_1 = 2 + 0.5 * 6 = 5 (from its own last state);  G_0 = 1 + 0.5 * 5 = 3.5
    rollout = {
        "r_t": torch.tensor([[1.0], [2.0], [3.0]]),
        "discount_t": torch.tensor([[0.5], [0.5], [0.5]]),
        "v_tp1": torch.tensor([[4.0], [6.0], [8.0]]),
        "last_t": torch.tensor([[0.0], [1.0], [1.0]]),
    }
    assert_close(losses.discounted_returns(**rollout), torch.tensor([[3.5], [5.0], [7.0]]))
    # With lambda 0.5: G_0 = 1 + 0.5 (0.5 * 4 + 0.5 * 5) = 3.25.
    assert_close(losses.lambda_returns(**rollout, lambda_=0.5), torch.tensor([[3.25], [5.0], [7.0]]))


def test_generalised_advantages_are_those_derived_by_hand() -> None:
    # delta = (1 + 0.5 * 4 - 2, 2 + 0 - 4, 3 + 0.5 * 8 - 5) = (1, -2, 2); the second step is terminal.
    # A_2 = 2;  A_1 = -2;  A_0 = 1 + 0.5 * 0.5 * -2 = 0.5
    targets = losses.gae(
        r_t=torch.tensor([[1.0], [2.0], [3.0]]),
        discount_t=torch.tensor([[0.5], [0.0], [0.5]]),
        v_t=torch.tensor([[2.0], [4.0], [5.0]]),
        v_tp1=torch.tensor([[4.0], [6.0], [8.0]]),
        last_t=torch.tensor([[0.0], [1.0], [1.0]]),
        lambda_=0.5,
    )
    assert_close(targets.advantage, torch.tensor([[0.5], [-2.0], [2.0]]))
    assert_close(targets.target, torch.tensor([[2.5], [2.0], [7.0]]))


@hypothesis.settings(deadline=None, max_examples=60)
@hypothesis.given(
    length=strategies.integers(1, 20),
    num_environments=strategies.integers(1, 3),
    lambda_=strategies.sampled_from([0.0, 0.3, 0.95, 1.0]),
    seed=strategies.integers(0, 10_000),
)
def test_returns_and_advantages_are_the_sums_written_out(
    length: int, num_environments: int, lambda_: float, seed: int
) -> None:
    rollout = random_rollout(length, num_environments, seed)
    lambda_returns = plain_lambda_returns(rollout, lambda_)
    assert_close(losses.lambda_returns(**without_v_t(rollout), lambda_=lambda_), lambda_returns)
    assert_close(losses.discounted_returns(**without_v_t(rollout)), plain_lambda_returns(rollout, 1.0))
    gae = losses.gae(**rollout, lambda_=lambda_)
    assert_close(gae.target, lambda_returns)
    assert_close(gae.advantage, lambda_returns - rollout["v_t"])


def test_long_rollouts_keep_their_precision() -> None:
    rollout = random_rollout(length=4096, num_environments=2)
    rollout["discount_t"] = torch.full((4096, 2), 0.999)
    rollout["last_t"].zero_()
    exact = rollout["v_tp1"][-1].double()
    for t in reversed(range(4096)):
        exact = rollout["r_t"][t].double() + rollout["discount_t"][t].double() * exact
    returns = losses.discounted_returns(**without_v_t(rollout))
    torch.testing.assert_close(returns[0].double(), exact, rtol=5e-5, atol=0.0)


# Reductions.


def test_gae_with_lambda_one_is_the_return_less_the_value() -> None:
    rollout = random_rollout(length=17, num_environments=3)
    gae, returns = losses.gae(**rollout, lambda_=1.0), losses.return_advantages(**rollout)
    assert_close(gae.advantage, returns.advantage)
    assert_close(gae.target, losses.discounted_returns(**without_v_t(rollout)))


def test_gae_with_lambda_zero_is_one_step() -> None:
    rollout = random_rollout(length=17, num_environments=3)
    gae, one_step = losses.gae(**rollout, lambda_=0.0), losses.one_step_advantages(**rollout)
    assert_close(gae.advantage, one_step.advantage)
    assert_close(gae.target, one_step.target)
    assert_close(one_step.target, losses.lambda_returns(**without_v_t(rollout), lambda_=0.0))


def test_true_values_leave_no_advantage_in_a_process_without_choice() -> None:
    # Reward 1 for ever: V = 1 / (1 - 0.9) = 10 everywhere.
    shape = (9, 2)
    rollout = random_rollout(*shape) | {
        "r_t": torch.ones(shape),
        "discount_t": torch.full(shape, 0.9),
        "v_t": torch.full(shape, 10.0),
        "v_tp1": torch.full(shape, 10.0),
    }
    for targets in (
        losses.gae(**rollout, lambda_=0.95),
        losses.one_step_advantages(**rollout),
        losses.return_advantages(**rollout),
    ):
        assert_close(targets.advantage, torch.zeros(shape))
        assert_close(targets.target, torch.full(shape, 10.0))


# The ends of episodes.


@pytest.mark.parametrize("estimator", ["gae", "one_step", "returns"])
def test_a_time_limit_is_not_the_end_of_the_world(estimator: str) -> None:
    # Two states in turn, reward 1 in each, cut every four steps: worth 1 / (1 - 0.8) = 5, and not the
    # 1 + 0.8 + 0.64 + 0.512 = 2.952 that the episode pays. Found by regressing V to its targets.
    state_t = torch.tensor([0, 1, 0, 1, 0, 1, 0, 1])[:, None]
    next_state_t = 1 - state_t
    last_t = torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0])[:, None]
    value = torch.zeros(2)
    for _ in range(100):
        rollout = {
            "r_t": torch.ones(8, 1),
            "discount_t": torch.full((8, 1), 0.8),
            "v_t": value[state_t],
            "v_tp1": value[next_state_t],
            "last_t": last_t,
        }
        targets = {
            "gae": lambda rollout=rollout: losses.gae(**rollout, lambda_=0.9),
            "one_step": lambda rollout=rollout: losses.one_step_advantages(**rollout),
            "returns": lambda rollout=rollout: losses.return_advantages(**rollout),
        }[estimator]()
        value = torch.stack([targets.target[state_t == state].mean() for state in (0, 1)])
    torch.testing.assert_close(value, torch.full((2,), 5.0))


def test_a_terminal_is_the_end_of_the_world() -> None:
    rollout = random_rollout(length=4, num_environments=1)
    rollout["discount_t"] = torch.tensor([[0.8], [0.8], [0.8], [0.0]])
    rollout["r_t"], rollout["last_t"] = torch.ones(4, 1), torch.tensor([[0.0], [0.0], [0.0], [1.0]])
    returns = losses.discounted_returns(**without_v_t(rollout))
    assert_close(returns, torch.tensor([[2.952], [2.44], [1.8], [1.0]]))


@pytest.mark.parametrize("discount", [0.0, 0.9])
def test_nothing_behind_an_end_reaches_the_steps_before(discount: float) -> None:
    rollout = random_rollout(length=6, num_environments=2)
    rollout["last_t"][2], rollout["discount_t"][2] = 1.0, discount
    changed = {name: tensor.clone() for name, tensor in rollout.items()}
    for name in ("r_t", "v_t", "v_tp1"):
        changed[name][3:] += 5.0
    before, after = losses.gae(**rollout, lambda_=1.0), losses.gae(**changed, lambda_=1.0)
    assert torch.equal(before.advantage[:3], after.advantage[:3])
    assert not torch.allclose(before.advantage[3:], after.advantage[3:])


def test_the_last_row_ends_whether_it_says_so_or_not() -> None:
    rollout = random_rollout(length=5, num_environments=2)
    unmarked = rollout | {"last_t": rollout["last_t"].clone()}
    unmarked["last_t"][-1] = 0.0
    for lambda_ in (0.0, 0.7, 1.0):
        assert torch.equal(
            losses.lambda_returns(**without_v_t(rollout), lambda_=lambda_),
            losses.lambda_returns(**without_v_t(unmarked), lambda_=lambda_),
        )
        marked_gae, gae = losses.gae(**rollout, lambda_=lambda_), losses.gae(**unmarked, lambda_=lambda_)
        assert torch.equal(marked_gae.advantage, gae.advantage)


# Form.


def test_environments_do_not_touch() -> None:
    rollout = random_rollout(length=11, num_environments=3)
    alone = [
        losses.gae(**{name: tensor[:, e : e + 1] for name, tensor in rollout.items()}, lambda_=0.9).target
        for e in range(3)
    ]
    assert_close(losses.gae(**rollout, lambda_=0.9).target, torch.cat(alone, dim=1))


def test_targets_carry_no_gradient_and_inputs_stay_as_they_are() -> None:
    rollout = random_rollout(length=6, num_environments=2)
    copies = {name: tensor.clone() for name, tensor in rollout.items()}
    for name in ("v_t", "v_tp1"):
        rollout[name].requires_grad_()
    for targets in (
        losses.gae(**rollout, lambda_=0.9),
        losses.one_step_advantages(**rollout),
        losses.return_advantages(**rollout),
    ):
        assert not targets.advantage.requires_grad
        assert not targets.target.requires_grad
    for name, tensor in copies.items():
        assert torch.equal(rollout[name].detach(), tensor)


def test_no_number_is_fetched_from_the_device() -> None:
    rollout = {name: tensor.to("meta") for name, tensor in random_rollout(6, 2).items()}
    assert losses.gae(**rollout, lambda_=0.9).advantage.shape == (6, 2)
    assert losses.return_advantages(**rollout).target.shape == (6, 2)


@pytest.mark.parametrize("name", ["r_t", "discount_t", "v_t", "v_tp1", "last_t"])
def test_a_wrong_shape_is_named(name: str) -> None:
    rollout = random_rollout(length=3, num_environments=2)
    rollout[name] = torch.zeros(3, 2, 1)
    for estimate in (losses.one_step_advantages, losses.return_advantages):
        with pytest.raises(ValueError, match=rf"`{name}` must have shape \[.*\], got \[3, 2, 1\]"):
            estimate(**rollout)
    with pytest.raises(ValueError, match=rf"`{name}` must have shape"):
        losses.gae(**rollout, lambda_=0.9)
