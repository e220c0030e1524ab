"""Lazy names of modules, names of other libraries, and readable text."""

__all__: list[str] = []
