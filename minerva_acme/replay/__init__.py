"""Replay: where steps are stored as they come and sampled in batches.

`base` is the contract, Reverb is what it is built on. Nothing here imports Reverb before a server or a
client is made. `dataset` makes tensors of it and is imported on its own: a process that only holds or
writes replay needs no torch.
"""

from minerva_acme.replay.base import (
    ColumnSpec,
    FieldSpec,
    Fifo,
    ItemSignature,
    Lifo,
    MinSize,
    Prioritized,
    Queue,
    ReplayClient,
    ReplayError,
    ReplayServer,
    ReplayTimeout,
    SampleInfo,
    Sampler,
    SampleToInsertRatio,
    TableConfig,
    TableInfo,
    Uniform,
    Window,
    Writer,
)
from minerva_acme.replay.reverb_store import ReverbClient, ReverbServer

__all__ = [
    "ColumnSpec",
    "FieldSpec",
    "Fifo",
    "ItemSignature",
    "Lifo",
    "MinSize",
    "Prioritized",
    "Queue",
    "ReplayClient",
    "ReplayError",
    "ReplayServer",
    "ReplayTimeout",
    "ReverbClient",
    "ReverbServer",
    "SampleInfo",
    "SampleToInsertRatio",
    "Sampler",
    "TableConfig",
    "TableInfo",
    "Uniform",
    "Window",
    "Writer",
]
