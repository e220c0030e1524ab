"""PPO end to end on Pendulum-v1 in one environment."""

from . import on_policy_setup

BENCHMARK = on_policy_setup.benchmark("ppo_pendulum_1", "Pendulum-v1", num_environments=1, goal=2.5)
