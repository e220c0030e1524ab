"""A learner step of TD3 from 256 transitions: plain, by default, and with compiled losses."""

from . import learner_setup

BENCHMARK = learner_setup.benchmark("td3")
