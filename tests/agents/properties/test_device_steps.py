"""A learner step on a GPU: the same operations of the same shapes each time, and the host waits for none.

So it could be captured as one graph. Torch's meta device stands in for the GPU: its tensors have shapes, but
no numbers that could be read.
"""

import dataclasses
import itertools

import pytest
import torch
import tree
from torch.optim import optimizer

from minerva_acme.agents import mpo, registry

from .. import table
from ..on_meta import META, Watch, to_meta

pytestmark = pytest.mark.promise("A learner step on a GPU waits for no number")

MEMORY = {"memory": "lstm", "memory_size": 4, "burn_in": 2, "sequence_length": 4, "sequence_period": 2}
SMALL = {"policy_layer_sizes": (8,), "critic_layer_sizes": (8,), "num_samples": 3, **table.SEQUENCES}


def preset(name):
    """MPO by one of its presets, with small networks."""
    config = dataclasses.replace(mpo.PRESETS[name], **SMALL)
    return table.Scene(
        "mpo", {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    )


PPO = {"num_epochs": 1, "minibatch_size": 8}
OTHERS = {
    "ppo, squashed, of one torso": {
        **PPO,
        "squash_actions": True,
        "advantage_estimator": "dae",
        "shared_torso": True,
        "torso": "layer_norm",
    },
    "vmpo, of returns": {
        "advantage_estimator": "returns",
        "state_dependent_stddev": True,
        "scale_rewards": False,
        "normalize_observations": False,
        "normalize_advantages": False,
    },
    "dqn, c51": {"critic_head": "c51"},
    "sac, normalised": {"normalize_observations": True, "critic_head": "c51"},
}
# The agent, and how often its step waits for the device, where no way around is known.
CASES = {
    **{name: (table.Scene(name), 0) for name in registry.AGENTS if name not in ("r2d2", "ppo")},
    "ppo": (table.Scene("ppo", PPO), 0),
    **{name: (table.Scene(name.partition(",")[0], settings), 0) for name, settings in OTHERS.items()},
    **{f"mpo, {name}": (preset(name), 0) for name in ("dmpo", "modern")},
    # Once for the number of states that happened.
    "mpo, in all states": (
        table.Scene(
            "mpo",
            {
                "critic_target": "n_step",
                "critic_loss_steps": "all",
                "policy_loss_steps": "all",
                "action_penalty": True,
                "per_dimension_constraint": False,
                "temperature": "learned",
            },
        ),
        1,
    ),
    # Once for the number of pairs that happened, which batch norm must see alone.
    "mpo, batch norm": (table.Scene("mpo", {"critic_torso": "batch_norm", "temperature": "learned"}), 1),
    # Whenever a memory goes through steps, for where episodes begin in them.
    "r2d2": (table.Scene("r2d2"), 4),
    "sac, memory": (table.Scene("sac", MEMORY), 10),
}


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


class OnAGpu:
    """The optimisers that a builder has on a GPU."""

    def make_optimizer(self, name, parameters):
        return torch.optim.Adam(parameters, fused=True)


def assert_steps_are_alike(learner, reads, num_reads, period=1):
    """Watches two steps of a learner, or with a period two of each kind, after the first one."""
    with Watch():
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


@pytest.mark.parametrize("name", CASES)
def test_a_step_is_made_of_the_same_operations_and_waits_for_no_number(name, reads):
    scene, num_reads = CASES[name]
    builder, batch = scene.builder(OnAGpu), scene.make_batch()
    if getattr(builder.config, "scale_returns", False) and hasattr(batch, "mask"):
        batch = batch._replace(extras=batch.extras._replace(running_return=batch.reward))
    learner, rows = scene.make(itertools.repeat(to_meta(batch)), builder=builder, parts={"device": META})
    assert_steps_are_alike(learner, reads, num_reads, getattr(builder.config, "policy_period", 1))
    logged = {name: value for name, value in rows[-1].items() if isinstance(value, torch.Tensor)}
    assert any(name.startswith("loss/") for name in logged)
    kept = {name: x for name, x in tree.flatten_with_path(table.state_of(learner)) if torch.is_tensor(x)}
    assert kept and {name: x.device for name, x in (logged | kept).items() if x.device != META} == {}
