"""Reinforcement learning agents from interchangeable parts, in PyTorch."""

from minerva_acme import thread_settings
from minerva_acme._version import __version__

thread_settings.set_defaults()  # before anything here imports torch, which reads them once

__all__ = ["__version__"]
