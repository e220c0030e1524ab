"""What is not finite is found, and named."""

import pytest
import torch

from minerva_acme import learners
from minerva_acme.learners import finite


def test_finite_tensors_pass_and_others_are_named():
    learners.require_finite({"rewards": torch.tensor([1.0, -1e38]), "values": torch.zeros(0)})
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
