"""Names that load a module when they are used, other libraries' names, and text for people."""

__all__: list[str] = []
