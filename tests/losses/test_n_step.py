import pytest
import torch

from minerva_acme import losses


def plain_return(
    v_tp1: torch.Tensor, r_t: torch.Tensor, discount_t: torch.Tensor, num_steps: int
) -> list[float]:
    """Returns of one sequence of `num_steps` true steps, each summed forwards by itself."""
    targets = []
    for start in range(num_steps):
        total, weight = 0.0, 1.0
        for t in range(start, num_steps):
            total += weight * r_t[t].item()
            weight *= discount_t[t].item()
        targets.append(total + weight * v_tp1[num_steps - 1].item())
    return targets


@pytest.mark.parametrize("garbage", [0.0, torch.inf, torch.nan])
def test_targets_are_the_returns_summed_forwards(garbage: float) -> None:
    generator = torch.Generator().manual_seed(0)
    v_tp1, r_t = torch.randn(2, 30, 6, generator=generator).unbind(0)
    discount_t = 0.9 * (torch.rand(30, 6, generator=generator) > 0.1)
    lengths = [1 + b % 6 for b in range(30)]
    mask_t = torch.tensor([[float(t < length) for t in range(6)] for length in lengths])
    expected = torch.tensor(
        [
            plain_return(v_tp1[b], r_t[b], discount_t[b], length) + [0.0] * (6 - length)
            for b, length in enumerate(lengths)
        ]
    )
    padded = [torch.where(mask_t > 0, tensor, garbage) for tensor in (v_tp1, r_t, discount_t)]
    torch.testing.assert_close(losses.n_step_targets(*padded, mask_t), expected)


def test_truncated_episode_keeps_its_bootstrap_and_a_terminal_has_none() -> None:
    ones = torch.ones(2, 2)
    discount_t = torch.tensor([[0.5, 0.5], [0.5, 0.0]])
    target_t = losses.n_step_targets(8.0 * ones, ones, discount_t, ones)
    torch.testing.assert_close(target_t, torch.tensor([[3.5, 5.0], [1.5, 1.0]]))


def test_sequence_of_one_step_is_one_step() -> None:
    v_tp1, r_t, discount_t = torch.randn(3, 4, 1, generator=torch.Generator().manual_seed(0)).unbind(0)
    torch.testing.assert_close(
        losses.n_step_targets(v_tp1, r_t, discount_t, torch.ones(4, 1)),
        losses.one_step_targets(v_tp1, r_t, discount_t),
    )


def test_one_step_is_reward_and_discounted_value() -> None:
    target_t = losses.one_step_targets(torch.tensor([[4.0]]), torch.tensor([[1.0]]), torch.tensor([[0.5]]))
    torch.testing.assert_close(target_t, torch.tensor([[3.0]]))


def test_targets_carry_no_gradient() -> None:
    v_tp1 = torch.ones(2, 3, requires_grad=True)
    ones = torch.ones(2, 3)
    assert not losses.one_step_targets(v_tp1, ones, ones).requires_grad
    assert not losses.n_step_targets(v_tp1, ones, ones, ones).requires_grad


def test_a_wrong_shape_is_named() -> None:
    ones = torch.ones(2, 3)
    with pytest.raises(ValueError, match=r"`r_t` must have shape \[B = 2, T = 3\], got \[2, 1\]"):
        losses.one_step_targets(ones, ones[:, :1], ones)
    with pytest.raises(ValueError, match=r"`mask_t` must have shape \[B = 2, T = 3\], got \[3\]"):
        losses.n_step_targets(ones, ones, ones, ones[0])


@pytest.mark.parametrize("num_steps", [1, 2, 4, 6, 50])
@pytest.mark.parametrize("garbage", [0.0, torch.nan])
def test_a_return_of_at_most_n_steps_bootstraps_after_them(num_steps: int, garbage: float) -> None:
    v_tp1, r_t = torch.randn(2, 30, 6, generator=torch.Generator().manual_seed(0)).unbind(0)
    discount_t = 0.9 * (torch.rand(30, 6, generator=torch.Generator().manual_seed(1)) > 0.1)
    mask_t = torch.ones(30, 6)
    for b in range(30):  # padding before and after, of all sizes
        mask_t[b, : b % 3] = 0.0
        mask_t[b, 6 - b // 3 % 4 :] = 0.0
    mask_t[29] = torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    padded = [torch.where(mask_t > 0, tensor, garbage) for tensor in (v_tp1, r_t, discount_t)]
    found = losses.n_step_targets(*padded, mask_t, num_steps)
    for b in range(30):
        for t in range(6):
            if mask_t[b, t] == 0:
                assert found[b, t] == 0
                continue
            end = t
            while end + 1 < min(6, t + num_steps) and mask_t[b, end + 1] > 0:
                end += 1
            part = [x[b, t : end + 1] for x in (v_tp1, r_t, discount_t)]
            assert found[b, t].item() == pytest.approx(plain_return(*part, end + 1 - t)[0], abs=1e-5)
    if num_steps >= 6:
        torch.testing.assert_close(found, losses.n_step_targets(*padded, mask_t))


def test_a_return_of_no_step_is_refused() -> None:
    with pytest.raises(ValueError, match="`num_steps` must be >= 1, got 0."):
        losses.n_step_targets(*[torch.ones(1, 1)] * 4, num_steps=0)
