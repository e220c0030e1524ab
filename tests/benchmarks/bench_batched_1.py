"""A step of 1 pendulum in tensors."""

from . import batched_setup

BENCHMARK = batched_setup.benchmark(1)
