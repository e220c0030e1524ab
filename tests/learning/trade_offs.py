"""Two objectives, and a critic that sees more: the rows behind both.

    python -m tests.learning.trade_offs front --seeds 0 1
    python -m tests.learning.trade_offs hidden --seeds 0 1 2 3 4
    python -m tests.learning.trade_offs times

`front` trains MPO on cartpole swingup by return and by action cost, for five bounds of the cost. `hidden`
trains SAC on the swingup with an actuator whose gain changes with each episode. The policy sees the last
three positions; the critic sees gain and velocity too, or does not. Each run has a folder and continues there
if it was stopped; `minerva report` takes these folders. `times` prints the CPU time of a learner step with 1,
2 and 4 objectives.
"""

import argparse
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import dm_env
import numpy as np
import torch

from minerva_acme import builders, counting, environments, experiments, specs, testing, types, wrappers
from minerva_acme.agents import mpo, sac
from minerva_acme.wrappers.base import EnvironmentWrapper

TASK = "dm_control/cartpole/swingup"
COST_EPSILONS = (1e-4, 1e-3, 1e-2, 3e-2, 1e-1)
HIDDEN = ("gain", "velocity")


class ActionCost(EnvironmentWrapper):
    """Adds minus the squared action as a second reward, `cost`."""

    def __init__(self, environment: dm_env.Environment) -> None:
        super().__init__(environment)
        self._action: Any = None

    def reward_spec(self) -> types.NestedSpec:
        return {name: specs.Array((), np.float64, name) for name in ("cost", "return")}

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        self._action = action
        return super().step(action)

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        if timestep.first():
            return timestep
        cost = -np.square(self._action, dtype=np.float64).sum()
        return timestep._replace(reward={"return": np.float64(timestep.reward), "cost": cost})


class RandomGain(EnvironmentWrapper):
    """Multiplies the actions of each episode by a gain between 0.4 and 1, shown as `gain`."""

    def __init__(self, environment: dm_env.Environment, seed: int) -> None:
        super().__init__(environment)
        self._random = np.random.default_rng(seed)
        self._gain = 1.0

    def observation_spec(self) -> types.NestedSpec:
        return {**self._environment.observation_spec(), "gain": specs.Array((1,), np.float64, "gain")}

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        return super().step(self._gain * action)

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        if timestep.first():
            self._gain = self._random.uniform(0.4, 1.0)
        return timestep._replace(observation={**timestep.observation, "gain": np.array([self._gain])})


class PastPositions(EnvironmentWrapper):
    """Shows the positions of the last three steps instead of one, with other entries as they are."""

    def observation_spec(self) -> types.NestedSpec:
        spec = dict(self._environment.observation_spec())
        position = spec["position"]
        return {**spec, "position": specs.Array((3, *position.shape), position.dtype, "position")}

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        position = timestep.observation["position"]
        past = [position] * 3 if timestep.first() else [*self._past[1:], position]
        self._past = past
        return timestep._replace(observation={**timestep.observation, "position": np.array(past)})


def make_costly(seed: int) -> dm_env.Environment:
    """Makes the swingup with two rewards."""
    return environments.make_training_environment(ActionCost(environments.make(TASK, seed=seed)))


def make_hidden(seed: int, is_seen: bool) -> dm_env.Environment:
    """Makes the swingup with an unknown gain, which the critic sees or does not."""
    environment: Any = PastPositions(RandomGain(environments.make(TASK, seed=seed), seed))
    if is_seen:
        return environments.make_training_environment(environment, critic_observations=HIDDEN)
    only = environment.observation_spec()["position"]
    shown = wrappers.ObservationTransformWrapper(environment, transform=_position, spec=only)
    return environments.make_training_environment(shown)


def make_seen(seed: int) -> dm_env.Environment:
    """Makes `make_hidden` for a critic that sees more."""
    return make_hidden(seed, True)


def make_unseen(seed: int) -> dm_env.Environment:
    """Makes `make_hidden` for a critic that sees what the policy sees."""
    return make_hidden(seed, False)


def _position(observation: Any) -> Any:
    return observation["position"]


def run_front(directory: pathlib.Path, seed: int, steps: int, **settings: Any) -> None:
    """Trains MPO once for each bound of the cost."""
    for epsilon in COST_EPSILONS:
        config = mpo.MPOConfig(
            **{
                **_fields(mpo.PRESETS["control"]),
                "objectives": ("return", "cost"),
                "objective_epsilons": (0.1, epsilon),
                "init_log_temperature": 0.0,
                **settings,
            }
        )
        _run(mpo.MPOBuilder(config), make_costly, directory / f"cost{epsilon:g}-seed{seed}", seed, steps)


def run_hidden(directory: pathlib.Path, seed: int, steps: int, **settings: Any) -> None:
    """Trains SAC with and without the critic's part."""
    for is_seen in (True, False):
        names = HIDDEN if is_seen else ()
        config = {**_fields(sac.PRESETS["control"]), "critic_observations": names, **settings}
        name = f"{'seen' if is_seen else 'unseen'}-seed{seed}"
        _run(
            sac.SACBuilder(sac.SACConfig(**config)),
            make_seen if is_seen else make_unseen,
            directory / name,
            seed,
            steps,
        )


def _fields(config: Any) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__dataclass_fields__}


def _run(builder: Any, factory: Any, directory: pathlib.Path, seed: int, steps: int) -> None:
    result = experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=builder,
            environment_factory=factory,
            directory=directory,
            num_env_steps=steps,
            seed=seed,
            replay="memory",
            evaluation_period=max(1, steps // 10),
            evaluation_episodes=5,
            tensorboard=False,
        )
    )
    if result.after is None:
        raise KeyboardInterrupt(f"{directory} was stopped; the same command continues it.")
    means = {name: float(np.mean(found)) for name, found in result.after.leaf_returns.items()}
    print(directory.name, f"{result.after.mean:.1f}", means, flush=True)


def step_times(num_objectives: Sequence[int] = (1, 2, 4), num_steps: int = 30) -> Mapping[int, float]:
    """Returns the CPU milliseconds of a learner step of MPO's preset `control`, by number of objectives.

    The learners take turns, so that a busy machine slows all of them alike.
    """
    torch.set_num_threads(1)
    found = {num: _make_learner(num) for num in num_objectives}
    spent = {num: [] for num in num_objectives}
    for step in range(num_steps):
        for num, learner in found.items():
            begun = time.process_time()
            learner.step()
            if step >= num_steps // 3:
                spent[num].append(1e3 * (time.process_time() - begun))
    return {num: float(np.median(each)) for num, each in spent.items()}


def _make_learner(num_objectives: int) -> Any:
    names = tuple(f"reward{k}" for k in range(num_objectives))
    number = specs.Array((), np.float32)
    spec = specs.EnvironmentSpec(
        specs.Array((24,), np.float32),
        specs.BoundedArray((6,), np.float32, -1.0, 1.0),
        {name: number for name in names},
        specs.BoundedArray((), np.float32, 0.0, 1.0),
    )
    config = mpo.MPOConfig(
        **{
            **_fields(mpo.PRESETS["control"]),
            "objectives": names,
            "objective_epsilons": (0.1,) * num_objectives,
        }
    )
    builder, generator = mpo.MPOBuilder(config), torch.Generator().manual_seed(0)
    size, length = config.batch_size, config.sequence_length
    raw = torch.randn(size, length, 6, generator=generator)
    batch = types.Trajectory(
        observation=torch.randn(size, length + 1, 24, generator=generator),
        action=raw.clamp(-1.0, 1.0),
        reward={name: torch.randn(size, length, generator=generator) for name in names},
        discount=torch.ones(size, length),
        mask=torch.ones(size, length),
        extras=mpo.BehaviourExtras(log_prob=torch.full((size, length), -8.0), raw_action=raw),
    )
    return builder.make_learner(
        builders.LearnerParts(
            networks=builder.make_networks(spec, generator),
            dataset=iter(lambda: batch, None),
            spec=spec,
            counter=counting.Counter(),
            logger=testing.FakeLogger(),
            generator=generator,
            device=torch.device("cpu"),
        )
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains, or measures."""
    parser = argparse.ArgumentParser(prog="python -m tests.learning.trade_offs", description=__doc__)
    parser.add_argument("what", choices=["front", "hidden", "times"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--num-env-steps", type=int, default=30_000)
    parser.add_argument("--directory", type=pathlib.Path, default=pathlib.Path("runs/trade_offs"))
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if chosen.what == "times":
        for num, milliseconds in step_times().items():
            print(f"{num} objectives: {milliseconds:.1f} ms of CPU a step", flush=True)
        return
    run = run_front if chosen.what == "front" else run_hidden
    for seed in chosen.seeds:
        run(chosen.directory / chosen.what, seed, chosen.num_env_steps)


if __name__ == "__main__":
    main()
