"""Reverb's bindings load without TensorFlow, next to everything else, and can be shared."""

import os
import subprocess
import sys
import types

import pytest

from minerva_acme import replay
from minerva_acme.replay.reverb import loader

pytestmark = pytest.mark.reverb

_USE = """
import sys
def use():
    import numpy as np
    from minerva_acme import replay
    signature = replay.ItemSignature(
        {"column": replay.ColumnSpec((), np.dtype(np.float32))}, {"field": replay.FieldSpec("column", 1)})
    table = replay.TableConfig(
        name="table", signature=signature, max_size=10, rate_limiter=replay.MinSize(1))
    with replay.ReverbServer([table]) as server, server.client().writer(1) as writer:
        writer.append({"column": np.array(7, np.float32)})
        writer.create_item("table", 1.0, {"field": replay.Window("column", 0, 1)})
        writer.flush()
        with server.client().sampler("table") as sampler:
            assert sampler.sample_batch(1)[1]["field"] == 7
    np.random.default_rng(0).normal(size=10)
"""


def run(script, **environment):
    # A crash in C++ would take the tests with it.
    command = [sys.executable, "-W", "ignore", "-c", _USE + script]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_bindings_come_without_tensorflow_and_torch_and_reverb_work_after_them(tmp_path):
    """That they work after torch is seen by all tests that use them: torch is there first."""
    script = """
use()
print("tensorflow" in sys.modules, "torch" in sys.modules)
import torch
torch.nn.Linear(2, 1)(torch.ones(3, 2)).sum().backward()
import reverb
from minerva_acme.replay.reverb import loader
print(reverb.pybind.Client is loader.load().Client)
server = reverb.Server([reverb.Table.queue("queue", 10)])
client = reverb.Client(f"localhost:{server.port}")
client.insert([1.0], {"queue": 1.0})
print(next(iter(client.sample("queue", 1)))[0].data[0])
use()
"""
    # Reverb's own server makes a temporary folder and leaves it.
    assert run(script, TMPDIR=str(tmp_path)) == ["False", "False", "True", "1.0"]


def test_the_plain_import_can_be_asked_for(monkeypatch):
    official = types.ModuleType("reverb.libpybind")

    def import_officially(name):
        assert name == "reverb"
        monkeypatch.setitem(sys.modules, "reverb.libpybind", official)

    monkeypatch.delitem(sys.modules, "reverb.libpybind", raising=False)
    monkeypatch.setattr(loader.importlib, "import_module", import_officially)
    monkeypatch.setenv(loader.LOADER_VARIABLE, "plain")
    assert loader.load() is official


def test_reverb_that_is_missing_or_of_another_version_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "reverb.libpybind", raising=False)

    def missing(name):
        raise loader.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(loader.importlib.metadata, "version", missing)
    with pytest.raises(
        ImportError, match="Replay needs Reverb, which is not installed.*pip install 'dm-reverb"
    ):
        loader.load()
    monkeypatch.setattr(loader.importlib.metadata, "version", lambda name: "0.15.0")
    with pytest.raises(replay.ReplayError, match="Reverb must be version 0.14.0, got 0.15.0"):
        loader.load()
