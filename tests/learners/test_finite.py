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
def test_the_field_to_blame_is_the_first_that_is_not_finite_or_has_the_largest_number(
    reward, log_prob, expected
):
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
    learners.require_finite({"rewards": torch.zeros(4, 5), "values": torch.zeros(3), "norm": torch.zeros(())})
    assert shapes == [(3,)]


def test_reading_gives_plain_numbers():
    assert learners.read(torch.tensor([1, 2])) == [1, 2]
    assert learners.read(torch.tensor(0.5)) == 0.5
