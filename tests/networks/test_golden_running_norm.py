"""Parity with the golden vectors, every case of the file."""

import pytest
import torch

from minerva_acme import networks


@pytest.mark.golden("running_norm.npz")
def test_running_norm_is_the_golden_one(case: dict[str, torch.Tensor]) -> None:
    x = case["x"]
    norm = networks.RunningNorm(x.shape[1])
    norm.count.mul_(1.0 + 1e-9)  # The vectors count the initial mean as rows that were seen.
    outputs = []
    for batch in x.split(case["batch_sizes"].tolist()):
        norm.update(batch)
        outputs.append(norm(batch))
    for actual, name in (
        (torch.cat(outputs), "expected_y"),
        (norm.mean, "expected_mean"),
        (norm.var, "expected_var"),
        (norm.count.float(), "expected_count"),
    ):
        torch.testing.assert_close(actual, case[name], rtol=1e-4, atol=1e-5)
