"""A learner step of SAC from 256 transitions: plain, by default, and with compiled losses."""

from . import learner_setup

BENCHMARK = learner_setup.benchmark("sac")
