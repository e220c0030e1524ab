"""PPO end to end on HalfCheetah-v5 in one environment."""

from . import on_policy_setup

BENCHMARK = on_policy_setup.benchmark("ppo_halfcheetah_1", "HalfCheetah-v5", num_environments=1, goal=2.5)
