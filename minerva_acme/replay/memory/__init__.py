"""Replay in the memory of this process."""
