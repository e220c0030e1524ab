"""What is not finite is found, and named."""

import math
from typing import NamedTuple

import pytest
import torch

from minerva_acme import learners
from minerva_acme.learners import finite


def test_finite_tensors_pass_and_others_are_named():
    learners.require_finite({"rewards": torch.tensor([1.0, -1e18]), "values": torch.zeros(0)})
    learners.require_finite({})
    for value in (float("nan"), float("inf"), -float("inf")):
        with pytest.raises(learners.NonFinite, match="^the values are not finite$"):
            learners.require_finite(
                {
                    "rewards": torch.zeros(2),
                    "values": torch.tensor([0.0, value]),
                    "targets": torch.ones(1) / 0,
                }
            )

    with pytest.raises(learners.NonFinite, match=r"^the values are as large as 1.1e\+18, beyond 1e\+18$"):
        learners.require_finite({"values": torch.tensor([0.0, -1.1e18]), "rewards": torch.tensor([math.nan])})


class Nest(NamedTuple):
    step: torch.Tensor
    reward: torch.Tensor
    extras: dict[str, torch.Tensor]


@pytest.mark.parametrize(
    ("reward", "log_prob", "expected"),
    [
        (-2.0, 1.0, " (the largest number of the batch is -2, `reward[1, 2]`)"),
        (2.0, -3e12, " (the largest number of the batch is -3e+12, `extras.log_prob[0]`)"),
        (3e18, -4e18, " (`extras.log_prob[0]` of the batch is -4e+18)"),
        (3e18, -math.inf, " (`extras.log_prob[0]` of the batch is -inf)"),
        (math.nan, -math.inf, " (`reward[1, 2]` of the batch is nan)"),
    ],
)
def test_the_field_to_blame_is_not_finite_or_has_the_largest_number(reward, log_prob, expected):
    rewards = torch.zeros(2, 3)
    rewards[1, 2] = reward
    step = torch.full((2,), 10**16)  # What is no floating-point number is right at any size.
    batch = Nest(step=step, reward=rewards, extras={"log_prob": torch.tensor([log_prob, 0.0])})
    assert finite.describe_largest(batch) == expected


def test_nothing_is_to_blame_in_an_empty_batch():
    assert finite.describe_largest(()) == finite.describe_largest({"reward": torch.zeros(0)}) == ""


def test_a_leaf_of_a_nest_is_named_by_its_path_and_integers_are_finite():
    nest = {"camera": torch.zeros(2, dtype=torch.uint8), "joints": (torch.zeros(1), torch.ones(2))}
    learners.require_finite({"observations": nest})
    learners.require_finite({"observations": nest["camera"]})
    nest["joints"][1][1] = float("nan")
    with pytest.raises(learners.NonFinite, match=r"^the observations\['joints'\]\[1\] are not finite$"):
        learners.require_finite({"observations": nest})


def test_many_tensors_are_read_from_the_device_at_once(monkeypatch):
    shapes = []
    monkeypatch.setattr(finite, "read", lambda tensor: shapes.append(tensor.shape) or tensor.tolist())
    monkeypatch.setattr(finite, "_is_surely_finite", lambda tensor: False)  # as of tensors on a GPU
    learners.require_finite({"rewards": torch.zeros(4, 5), "values": torch.zeros(3), "norm": torch.zeros(())})
    assert shapes == [(3,)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("value", [0.0, -3.0, 1e9, -1.1e9, 9e17, 1.1e18, -1e30, 3e38, math.inf, math.nan])
def test_what_the_host_finds_by_a_product_is_what_looking_at_each_number_finds(value, dtype, monkeypatch):
    tensor = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    tensor[2, 1, 3] = value
    messages = []
    for values in (tensor, tensor.transpose(0, 1), tensor[2, 1, 3], tensor.requires_grad_()):
        for quickly in (True, False):
            with monkeypatch.context() as patch:
                if not quickly:
                    patch.setattr(finite, "_is_surely_finite", lambda tensor: False)
                try:
                    learners.require_finite({"values": values})
                    messages.append("")
                except learners.NonFinite as error:
                    messages.append(str(error))
    assert messages[0::2] == messages[1::2]
    assert all(messages) == (not abs(value) <= 1e18)


def test_reading_gives_plain_numbers():
    assert learners.read(torch.tensor([1, 2])) == [1, 2]
    assert learners.read(torch.tensor(0.5)) == 0.5
