"""PPO's updates from a rollout: plain, on arrays (the default), and with the compiled loss."""

from . import learner_setup

BENCHMARK = learner_setup.benchmark("ppo", unit="rollout", calls_per_block=1)
