"""Replay on Reverb. Reverb itself is imported only when a server or a client is made."""

from minerva_acme.replay.reverb.store import ReverbClient, ReverbServer

__all__ = ["ReverbClient", "ReverbServer"]
