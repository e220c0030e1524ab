"""Replay on Reverb. Reverb itself is imported only when a server or a client is made."""
