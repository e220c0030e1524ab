"""Replay: where steps are stored as they come and sampled in batches.

`base` is the contract. Reverb and this process's memory are what it is built on; `make_server` chooses.
Nothing here imports Reverb before a server or a client of it is made. `dataset` makes tensors of batches
and is imported on its own: a process that only holds or writes replay needs no torch.
"""

from minerva_acme.replay.backends import make_server
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
from minerva_acme.replay.memory.client import MemoryClient
from minerva_acme.replay.memory.store import MemoryServer
from minerva_acme.replay.reverb.store import ReverbClient, ReverbServer

__all__ = [
    "ColumnSpec",
    "FieldSpec",
    "Fifo",
    "ItemSignature",
    "Lifo",
    "MemoryClient",
    "MemoryServer",
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
    "make_server",
]
