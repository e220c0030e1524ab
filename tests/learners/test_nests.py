import torch

from minerva_acme import learners


def test_a_nest_is_indexed_leaf_by_leaf():
    nest = {"a": torch.arange(6).view(2, 3), "b": (torch.arange(12).view(2, 3, 2),)}
    first = learners.at(nest, (slice(None), 0))
    assert first["a"].tolist() == [0, 3]
    assert first["b"][0].tolist() == [[0, 1], [6, 7]]
    assert learners.at(nest["a"], 1).tolist() == [3, 4, 5]


def test_floats_at_masked_steps_are_zero_whatever_they_were():
    mask = torch.tensor([[1.0, 0.0]])
    assert learners.where_unmasked(mask, torch.tensor([[2.0, float("nan")]])).tolist() == [[2.0, 0.0]]
    vectors = torch.tensor([[[1.0, 2.0], [float("inf"), 3.0]]])
    assert learners.where_unmasked(mask, vectors).tolist() == [[[1.0, 2.0], [0.0, 0.0]]]
    nest = learners.where_unmasked(mask, {"a": vectors, "b": torch.tensor([[3, 4]], dtype=torch.uint8)})
    assert nest["a"].tolist() == [[[1.0, 2.0], [0.0, 0.0]]]
    assert nest["b"].tolist() == [[3, 4]]
    assert nest["b"].dtype == torch.uint8
