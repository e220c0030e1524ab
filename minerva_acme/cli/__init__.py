"""The `minerva` command."""

from minerva_acme.cli.main import main

__all__ = ["main"]
