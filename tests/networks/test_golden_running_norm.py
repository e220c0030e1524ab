"""Parity with the golden vectors, every case of the file."""

import os
import pathlib

import numpy as np
import pytest
import torch

from minerva_acme import networks

GOLDEN_DIR = pathlib.Path(
    os.environ.get("MINERVA_GOLDEN_DIR") or pathlib.Path(__file__).resolve().parents[1] / "golden"
)


def load_cases() -> list[dict[str, np.ndarray]]:
    with np.load(GOLDEN_DIR / "running_norm.npz") as arrays:
        names = ("x", "batch_sizes", "expected_y", "expected_mean", "expected_var", "expected_count")
        return [{name: arrays[f"case{i}/{name}"] for name in names} for i in range(int(arrays["num_cases"]))]


@pytest.mark.parametrize("case", load_cases())
def test_running_norm_is_the_golden_one(case: dict[str, np.ndarray]) -> None:
    x = torch.from_numpy(case["x"])
    norm = networks.RunningNorm(x.shape[1])
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
        expected = torch.from_numpy(np.asarray(case[name]))
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
