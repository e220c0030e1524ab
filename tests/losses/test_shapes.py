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


def test_axes_that_may_be_any_are_the_same_in_all_tensors_that_have_them() -> None:
    logits, mask = torch.zeros(3, 4, 2), torch.zeros(3, 4)
    losses.check_shapes(("logits", logits, "...K"), ("mask", mask, "..."), ("atoms", torch.zeros(2), "K"))
    losses.check_shapes(("loss", torch.zeros(()), "..."), ("logits", torch.zeros(2), "...K"))
    with pytest.raises(ValueError, match=r"`mask` must have shape \[\.\.\. = \[3, 4\]\], got \[3, 1\]\."):
        losses.check_shapes(("logits", logits, "...K"), ("mask", torch.zeros(3, 1), "..."))
    with pytest.raises(
        ValueError, match=r"`loc` must have shape \[\.\.\. = \[3, 4\], K = 2\], got \[3, 4, 5\]"
    ):
        losses.check_shapes(("logits", logits, "...K"), ("loc", torch.zeros(3, 4, 5), "...K"))
    with pytest.raises(ValueError, match=r"`logits` must have shape \[\.\.\., K\], got \[\]\."):
        losses.check_shapes(("logits", torch.zeros(()), "...K"))


def test_an_axis_too_many_is_refused_where_no_size_is_known_yet() -> None:
    with pytest.raises(ValueError, match=r"`q_t` must have shape \[B, T\], got \[5, 3, 4\]\."):
        losses.check_shapes(("q_t", torch.zeros(5, 3, 4), "BT"))
