"""Replay in the memory of this process."""

from minerva_acme.replay.memory.client import MemoryClient
from minerva_acme.replay.memory.store import MemoryServer

__all__ = ["MemoryClient", "MemoryServer"]
