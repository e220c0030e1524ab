"""PPO end to end on Pendulum-v1 in eight environments."""

from . import on_policy_setup

BENCHMARK = on_policy_setup.benchmark("ppo_pendulum_8", "Pendulum-v1", num_environments=8, goal=2.0)
