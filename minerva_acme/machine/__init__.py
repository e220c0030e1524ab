"""Threads, memory, files and random number generators of the machine."""

__all__: list[str] = []
