"""A custom dm_env environment with dict observations: write it, test it, train on it.

    pytest examples/custom_environment.py                            # checks that it follows dm_env
    python examples/custom_environment.py --num-env-steps 20000      # PPO learns to dock

No Gymnasium is needed: an environment is four specs, `reset` and `step`.
"""

from typing import Any

import dm_env
import numpy as np
import tyro

from minerva_acme import environments, experiments, specs, testing
from minerva_acme.agents import ppo


class Docking(dm_env.Environment):
    """A craft on a line must stop at a berth. The action is its thrust.

    The reward of a step is 1 minus the distance to the berth, but at least 0. Beyond ±2 the craft is lost:
    the episode terminates with discount 0. After `max_steps` the episode is truncated with discount 1, so
    that learners bootstrap.
    """

    def __init__(self, seed: int, max_steps: int = 40) -> None:
        self._random = np.random.default_rng(seed)
        self._max_steps = max_steps
        self._reset_next_step = True

    def reset(self) -> dm_env.TimeStep:
        self._reset_next_step = False
        self._step, self._velocity = 0, 0.0
        self._position, self._berth = self._random.uniform(-1.0, 1.0, size=2)
        return dm_env.restart(self._observation())

    def step(self, action: np.ndarray) -> dm_env.TimeStep:
        if self._reset_next_step:  # dm_env: a step after LAST, or before the first reset, resets
            return self.reset()
        self._step += 1
        self._velocity = 0.8 * self._velocity + 0.1 * float(np.clip(action[0], -1.0, 1.0))
        self._position += self._velocity
        reward = max(0.0, 1.0 - abs(self._position - self._berth))
        is_lost, is_late = abs(self._position) > 2.0, self._step == self._max_steps
        self._reset_next_step = is_lost or is_late
        if is_lost:
            return dm_env.termination(reward, self._observation())
        if is_late:
            return dm_env.truncation(reward, self._observation(), discount=1.0)
        return dm_env.transition(reward, self._observation(), discount=1.0)

    def observation_spec(self) -> dict[str, Any]:
        return {
            "body": {name: specs.Array((1,), np.float64, name=name) for name in ("position", "velocity")},
            "berth": specs.BoundedArray((1,), np.float64, -1.0, 1.0, name="berth"),
        }

    def action_spec(self) -> specs.BoundedArray:
        return specs.BoundedArray((1,), np.float64, -1.0, 1.0, name="thrust")

    def _observation(self) -> dict[str, Any]:
        return {
            "body": {"position": np.array([self._position]), "velocity": np.array([self._velocity])},
            "berth": np.array([self._berth]),
        }


class TestDocking(testing.EnvironmentConformance):
    """Inherits tests of specs, step order, resets at any time and fresh arrays."""

    def make_environment(self) -> dm_env.Environment:
        return Docking(seed=0)


def main(
    num_env_steps: int = 20_000, directory: str = "runs/docking", seed: int = 0
) -> experiments.ExperimentResult:
    """Trains PPO. `make_training_environment` joins the dict of observations into one float32 vector."""
    config = ppo.PPOConfig(num_environments=4, rollout_steps=1024, discount=0.95)
    return experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=ppo.PPOBuilder(config),
            environment_factory=lambda seed: environments.make_training_environment(Docking(seed)),
            directory=directory,
            num_env_steps=num_env_steps,
            seed=seed,
        )
    )


if __name__ == "__main__":
    result = tyro.cli(main)
    for name, evaluation in (("random", result.random), ("before", result.before), ("after", result.after)):
        if evaluation is not None:
            print(f"{name:>6}: return {evaluation.mean:.1f} ± {evaluation.std:.1f}, at most 40")
