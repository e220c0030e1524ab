"""Replay, which stores steps as they arrive and samples them in batches.

`base` defines the interface. It has two implementations, on Reverb and in this process's memory;
`make_server` chooses one. Reverb is imported only when one of its servers or clients is made. `dataset`
turns batches into tensors and is imported separately: a process that only holds or writes replay does not
need PyTorch.
"""

from minerva_acme.replay.backends import make_server
from minerva_acme.replay.base import (
    NO_KEY,
    BatchedWriter,
    ColumnSpec,
    FieldSpec,
    ItemSignature,
    MinSize,
    Queue,
    RateLimiter,
    ReplayClient,
    ReplayError,
    ReplayServer,
    ReplayTimeout,
    Ring,
    SampleInfo,
    Sampler,
    SampleToInsertRatio,
    TableConfig,
    TableInfo,
    Window,
    Writer,
)
from minerva_acme.replay.memory.client import MemoryClient
from minerva_acme.replay.memory.store import MemoryServer
from minerva_acme.replay.reverb.store import ReverbClient, ReverbServer
from minerva_acme.replay.selectors import Fifo, Items, Lifo, Prioritized, Selection, Selector, Uniform

__all__ = [
    "BatchedWriter",
    "ColumnSpec",
    "FieldSpec",
    "Fifo",
    "ItemSignature",
    "Items",
    "Lifo",
    "MemoryClient",
    "MemoryServer",
    "MinSize",
    "NO_KEY",
    "Prioritized",
    "Queue",
    "RateLimiter",
    "ReplayClient",
    "ReplayError",
    "ReplayServer",
    "ReplayTimeout",
    "ReverbClient",
    "ReverbServer",
    "Ring",
    "SampleInfo",
    "SampleToInsertRatio",
    "Sampler",
    "Selection",
    "Selector",
    "TableConfig",
    "TableInfo",
    "Uniform",
    "Window",
    "Writer",
    "make_server",
]
