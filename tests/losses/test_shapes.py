import pytest
import torch

from minerva_acme import losses


def test_axes_of_one_name_may_have_any_one_size() -> None:
    weights, actions, loss = torch.zeros(3, 4), torch.zeros(3, 4, 2), torch.zeros(())
    losses.check_shapes(("weights", weights, "BN"), ("actions", actions, "BND"), ("loss", loss, ""))
    with pytest.raises(ValueError, match=r"`actions` must have shape \[B = 3, N = 4, D\], got \[3, 5, 2\]\."):
        losses.check_shapes(("weights", weights, "BN"), ("actions", torch.zeros(3, 5, 2), "BND"))


@pytest.mark.parametrize("shape", [(3, 1), (1, 4), (4,), (3, 4, 1), ()])
def test_nothing_is_broadcast(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"`r_t` must have shape \[B = 3, T = 4\], got \["):
        losses.check_shapes(("q_t", torch.zeros(3, 4), "BT"), ("r_t", torch.zeros(shape), "BT"))
