"""A learner step on a GPU: the same operations of the same shapes each time, and the host waits for none.

So it could be captured as one graph. Torch's meta device stands in for the GPU: its tensors have shapes, but
no numbers that could be read.
"""

import dataclasses
import itertools

import pytest
import torch
from torch.optim import optimizer
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from minerva_acme.agents import mpo

from .. import conftest as on_policy
from .. import transition_scene as scene
from . import test_shared_settings as shared

META = torch.device("meta")
MEMORY = {"memory": "lstm", "memory_size": 4, "burn_in": 2, "sequence_length": 4, "sequence_period": 2}
SMALL = {"policy_layer_sizes": (8, 8), "critic_layer_sizes": (8, 8), "num_samples": 3, **shared.SEQUENCES}


def preset(name):
    """The settings of one of MPO's presets, with small networks."""
    config = dataclasses.replace(mpo.PRESETS[name], **SMALL)
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}


# The agent, its settings, and how often its step waits for the device, where no way around is known.
OVER_REPLAY = {
    **{name: (name, {}, 0) for name in shared.AGENTS if name != "r2d2"},
    "sac, normalised": ("sac", {"normalize_observations": True, "critic_head": "c51"}, 0),
    **{f"mpo, {name}": ("mpo", preset(name), 0) for name in ("control", "dmpo", "modern")},
    # Once for the number of states that happened.
    "mpo, in all states": ("mpo", {"policy_loss_steps": "all"}, 1),
    # Once for the number of pairs that happened, which batch norm must see alone.
    "mpo, batch norm": ("mpo", {"critic_torso": "batch_norm"}, 1),
    # Whenever a memory goes through steps, for where episodes begin in them.
    "r2d2": ("r2d2", {}, 4),
    "sac, memory": ("sac", MEMORY, 10),
}
OVER_ROLLOUTS = ("ppo", "vmpo", "impala")


def is_object(x):
    """True of a generator, say, which is described by where it lies."""
    return isinstance(x, torch.Generator | torch.ScriptObject)


class Watch(TorchDispatchMode):
    """Notes each operation with its inputs, tensors by their shapes, and those that mix host and device."""

    def __init__(self):
        super().__init__()
        self.operations, self.copies = [], []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        inputs = pytree.tree_leaves((args, kwargs))
        tensors = [x for x in (*inputs, *pytree.tree_leaves(found)) if isinstance(x, torch.Tensor)]
        shapes = [str(x.shape if isinstance(x, torch.Tensor) else x) for x in inputs if not is_object(x)]
        self.operations.append(f"{function} {shapes}")
        if len({x.device for x in tensors}) > 1:
            self.copies.append(str(function))
        return found


@pytest.fixture
def reads(monkeypatch):
    """What is read from the device, where every number is 1; other ways to read a number fail."""
    tensors, tolist = [], torch.Tensor.tolist

    def read(tensor):
        if tensor.device != META:
            return tolist(tensor)
        tensors.append(tensor)
        return tolist(torch.ones(tensor.shape, dtype=tensor.dtype))

    monkeypatch.setattr(torch.Tensor, "tolist", read)
    # Fused Adam works on the meta device as on a GPU, but torch does not know that.
    monkeypatch.setattr(optimizer, "_get_fused_kernels_supported_devices", lambda: ["meta"])
    return tensors


def as_on_a_gpu(builder):
    """The builder, with the optimisers that it has on a GPU."""

    class Fused(type(builder)):
        def make_optimizer(self, name, parameters):
            return torch.optim.Adam(parameters, fused=True)

    return Fused(builder.config)


def to_meta(batch):
    return pytree.tree_map(lambda leaf: leaf.to(META), batch)


def assert_steps_are_alike(learner, reads, num_reads, period=1):
    """Watches two steps of a learner, or with a period two of each kind, after the first one."""
    learner.run(num_steps=period)
    steps = []
    for _ in range(2 * period):
        reads.clear()
        with Watch() as watch:
            learner.step()
        assert len(reads) == num_reads
        assert not watch.copies
        steps.append(watch.operations)
    for earlier, later in zip(steps[:period], steps[period:], strict=True):
        differing = (pair for pair in itertools.zip_longest(earlier, later) if pair[0] != pair[1])
        assert next(differing, None) is None
        assert len(later) > 100


@pytest.mark.parametrize("name", OVER_REPLAY)
def test_a_step_from_replay_is_made_of_the_same_operations(name, reads, monkeypatch):
    agent, changes, num_reads = OVER_REPLAY[name]
    monkeypatch.setitem(shared.CASES, name, (agent, changes))
    builder, spec = shared.make(name)
    batch = shared.make_batch(builder, spec, 0)
    if getattr(builder.config, "scale_returns", False):
        batch = batch._replace(extras=batch.extras._replace(running_return=batch.reward))
    learner, _, _ = scene.make_learner(
        as_on_a_gpu(builder), spec, itertools.repeat(to_meta(batch)), device=META
    )
    assert_steps_are_alike(learner, reads, num_reads, getattr(builder.config, "policy_period", 1))


@pytest.mark.parametrize("name", OVER_ROLLOUTS)
def test_a_step_from_a_rollout_is_made_of_the_same_operations(
    name, reads, make_rollout, make_learner, continuous_spec
):
    agent = getattr(on_policy, name.upper())
    builder = as_on_a_gpu(agent.builder())
    network = builder.make_networks(continuous_spec, torch.Generator().manual_seed(0))
    rollout = to_meta(make_rollout(builder, network, continuous_spec))
    learner, _, _ = make_learner(builder, continuous_spec, itertools.repeat(rollout), device=META)
    assert_steps_are_alike(learner, reads, 0)
