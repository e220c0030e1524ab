"""A step of 16 pendulums in tensors."""

from . import batched_setup

BENCHMARK = batched_setup.benchmark(16)
