"""What the library asks of the machine: threads, memory, files, and generators of random numbers."""

__all__: list[str] = []
