"""Replay in the memory of this process."""

from minerva_acme.replay.memory.store import MemoryClient, MemoryServer

__all__ = ["MemoryClient", "MemoryServer"]
