import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

VARIANTS = """
def make(name):
    if name == "unmade":
        raise ArithmeticError("cannot be made")

    def function():
        if name == "failing":
            raise ArithmeticError("cannot be run")
        sum(range({"short": 1_000, "long": 300_000}[name]))

    return function
"""

SCRIPT = """
import json, os, sys
import variants
from tests.benchmarks import frame, processes

if __name__ == "__main__":
    with processes.each_alone(variants.make, sys.argv[1:]) as remotes:
        benchmark = frame.Benchmark(
            name="sums", unit="sum", make=None, reference=sys.argv[1], calls_per_block=3, is_remote=True
        )
        summaries = frame.summarise(frame.measure(benchmark, remotes, seconds=0.0), benchmark.reference)
        print(json.dumps({name: summary._asdict() for name, summary in summaries.items()}))
"""


@pytest.fixture
def measure(tmp_path):
    (tmp_path / "variants.py").write_text(VARIANTS)
    (tmp_path / "script.py").write_text(SCRIPT)

    def run(*names):
        return subprocess.run(
            [sys.executable, tmp_path / "script.py", *names],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"},
            capture_output=True,
            text=True,
        )

    return run


def test_each_variant_is_measured_in_its_process(measure):
    summaries = json.loads(measure("long", "short").stdout)
    assert summaries["short"]["cpu_ratio"] > 5.0  # of 300 in arithmetic
    assert summaries["short"]["rounds"] == 5
    assert summaries["long"]["cpu_ratio"] == 1.0


@pytest.mark.parametrize("name", ["unmade", "failing"])
def test_errors_come_with_their_variant_and_trace(measure, name):
    done = measure(name)
    assert done.returncode == 1
    assert f"RuntimeError: '{name}' failed:" in done.stderr
    assert "ArithmeticError: cannot be" in done.stderr
