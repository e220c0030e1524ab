"""Reinforcement learning agents from interchangeable parts, in PyTorch."""

from typing import TYPE_CHECKING

from minerva_acme import lazy, thread_settings
from minerva_acme._version import __version__

if TYPE_CHECKING:
    from minerva_acme.runs.policies import load_policy

thread_settings.set_defaults()  # before anything here imports torch, which reads the settings only once

__all__ = ["__version__", "load_policy"]

__getattr__ = lazy.attach(__name__, __file__)
