"""A step of 4096 pendulums in tensors."""

from . import batched_setup

BENCHMARK = batched_setup.benchmark(4096)
