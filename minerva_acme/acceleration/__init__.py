"""What exists for speed alone. Each part has a plain twin and a test that holds the two equal."""

__all__ = []
