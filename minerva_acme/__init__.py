"""Reinforcement learning agents from interchangeable parts, in PyTorch."""

import os

from minerva_acme._version import __version__

# Torch's threads otherwise spin while they wait for each other. Beside any other busy thread (the
# environment, Reverb's sampler) spinning takes the cores that the work needs: measured 2 to 20 times
# slower on two cores. Read once, when torch loads, so it is set before anything here imports torch;
# a value that the user has set stays.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__all__ = ["__version__"]
