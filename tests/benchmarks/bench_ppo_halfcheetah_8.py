"""PPO end to end on HalfCheetah-v5 in eight environments."""

from . import on_policy_setup

BENCHMARK = on_policy_setup.benchmark("ppo_halfcheetah_8", "HalfCheetah-v5", num_environments=8, goal=2.0)
