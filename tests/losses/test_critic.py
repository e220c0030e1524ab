import pytest
import torch

from minerva_acme import losses

TARGET = torch.tensor([[0.0, 1.0], [2.0, 3.0]])


def test_loss_and_gradient_are_those_of_the_mean_square_over_true_steps() -> None:
    q_t = torch.tensor([[1.0, 3.0], [2.0, 7.0]], requires_grad=True)
    mask_t = torch.tensor([[1.0, 1.0], [1.0, 0.0]])
    loss = losses.critic_loss(q_t, TARGET, mask_t)
    torch.testing.assert_close(loss, torch.tensor((1.0 + 4.0 + 0.0) / 3.0))
    loss.backward()
    torch.testing.assert_close(q_t.grad, torch.tensor([[2.0, 4.0], [0.0, 0.0]]) / 3.0)


@pytest.mark.parametrize("garbage", [1e30, torch.inf, torch.nan])
def test_padding_changes_neither_loss_nor_gradient(garbage: float) -> None:
    mask_t = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    q_t = torch.tensor([[1.0, garbage], [4.0, garbage]], requires_grad=True)
    target_t = TARGET.clone()
    target_t[:, 1] = garbage
    loss = losses.critic_loss(q_t, target_t, mask_t)
    loss.backward()
    torch.testing.assert_close(loss, torch.tensor(2.5))
    torch.testing.assert_close(q_t.grad, torch.tensor([[1.0, 0.0], [2.0, 0.0]]))


def test_batch_of_padding_has_loss_and_gradient_zero() -> None:
    q_t = torch.ones(2, 2, requires_grad=True)
    loss = losses.critic_loss(q_t, TARGET, torch.zeros(2, 2))
    loss.backward()
    assert loss.item() == 0.0
    torch.testing.assert_close(q_t.grad, torch.zeros(2, 2))


def test_no_gradient_flows_to_the_target() -> None:
    q_t = torch.ones(2, 2, requires_grad=True)
    target_t = TARGET.clone().requires_grad_()
    losses.critic_loss(q_t, target_t, torch.ones(2, 2)).backward()
    assert target_t.grad is None


def test_a_wrong_shape_is_named() -> None:
    with pytest.raises(ValueError, match=r"`target_t` must have shape \[... = \[2, 2\]\], got \[2\]"):
        losses.critic_loss(torch.ones(2, 2), torch.ones(2), torch.ones(2, 2))


def test_a_weight_shrinks_the_loss_of_its_step_and_no_other() -> None:
    q_t = torch.tensor([[1.0, 3.0], [2.0, 7.0]], requires_grad=True)
    weights_t = torch.tensor([[0.5, 1.0], [1.0, 0.0]])
    loss = losses.critic_loss(q_t, TARGET, weights_t)
    torch.testing.assert_close(loss, torch.tensor((0.5 * 1.0 + 4.0 + 0.0) / 3.0))
    loss.backward()
    torch.testing.assert_close(q_t.grad, torch.tensor([[1.0, 4.0], [0.0, 0.0]]) / 3.0)
