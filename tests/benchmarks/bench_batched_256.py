"""A step of 256 pendulums in tensors."""

from . import batched_setup

BENCHMARK = batched_setup.benchmark(256)
