"""Reinforcement learning agents from interchangeable parts, in PyTorch."""

from minerva_acme._version import __version__

__all__ = ["__version__"]
