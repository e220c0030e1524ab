"""Use tools written for dm_env, not for this library, with one of its agents.

    python examples/dm_env_tools.py              # trains briefly, then plays the policy without a window
    python examples/dm_env_tools.py --viewer     # opens dm_control's viewer on the policy; needs a display
    pytest examples/dm_env_tools.py              # runs dm_env's own tests on the environment that agents see

The tools are a logging wrapper like bsuite's, dm_env's `EnvironmentTestMixin`, and dm_control's viewer, whose
policy is a function of a timestep.
"""

import importlib
from collections.abc import Callable
from typing import Any

import dm_env
import tyro
from absl.testing import absltest
from dm_env import test_utils

from minerva_acme import environments, experiments, runs, types
from minerva_acme.agents import mpo

Row = dict[str, float]


class EpisodeLog(dm_env.Environment):
    """Writes one row per episode. It is a plain dm_env wrapper and inherits nothing from this library."""

    def __init__(self, environment: dm_env.Environment, write: Callable[[Row], None]) -> None:
        self._environment, self._write = environment, write
        self._episode = self._length = 0
        self._return = 0.0

    def reset(self) -> dm_env.TimeStep:
        return self._track(self._environment.reset())

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        return self._track(self._environment.step(action))

    def _track(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        if timestep.first():
            self._episode, self._length, self._return = self._episode + 1, 0, 0.0
            return timestep
        self._length += 1
        self._return += float(timestep.reward)
        if timestep.last():
            names = ("episode", "episode_len", "episode_return")
            self._write(dict(zip(names, (self._episode, self._length, self._return), strict=True)))
        return timestep

    def observation_spec(self) -> Any:
        return self._environment.observation_spec()

    def action_spec(self) -> Any:
        return self._environment.action_spec()

    def reward_spec(self) -> Any:
        return self._environment.reward_spec()

    def discount_spec(self) -> Any:
        return self._environment.discount_spec()

    def __getattr__(self, name: str) -> Any:  # `physics` for the viewer, `save` for checkpoints
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._environment, name)


class TestLoggedEnvironment(test_utils.EnvironmentTestMixin, absltest.TestCase):
    """dm_env's own tests, on the environment that an agent sees. Their 20 actions end two episodes."""

    def make_object_under_test(self, **unused: Any) -> dm_env.Environment:
        task = "dm_control/cartpole/swingup"
        return EpisodeLog(environments.make_training_environment(task, seed=0, time_limit=0.1), print)


def main(
    num_env_steps: int = 5_000,
    time_limit: float = 10.0,
    directory: str = "runs/tools",
    viewer: bool = False,
    config: mpo.MPOConfig = mpo.PRESETS["control"],
) -> list[Row]:
    """Trains MPO in logged environments, then plays an episode in dm_control's viewer."""
    builder, rows = mpo.MPOBuilder(config), list[Row]()

    def make(seed: int) -> dm_env.Environment:
        task = "dm_control/cartpole/swingup"
        environment = environments.make_training_environment(task, seed=seed, time_limit=time_limit)
        return EpisodeLog(environment, rows.append)

    experiment = experiments.ExperimentConfig(
        builder=builder,
        environment_factory=make,
        directory=directory,
        num_env_steps=num_env_steps,
        evaluation_episodes=2,
    )
    result = experiments.run_experiment(experiment)
    environment = make(0)
    learned = runs.load_policy(result.directory, builder, environment)

    def policy(timestep: dm_env.TimeStep) -> types.NestedArray:  # the viewer's interface
        return learned(timestep.observation).action

    if viewer:
        importlib.import_module("dm_control.viewer").launch(environment, policy=policy)
    else:  # the viewer's runtime, without its window
        runtime = importlib.import_module("dm_control.viewer.runtime")
        player = runtime.Runtime(environment, policy)
        while player.state is not runtime.State.STOPPED:
            player.tick(time_elapsed=0.1, paused=False)
    return rows


if __name__ == "__main__":
    result = tyro.cli(main)
    print(*result[-5:], sep="\n")
