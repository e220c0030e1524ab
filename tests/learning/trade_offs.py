"""Two objectives, and a critic that sees more: the rows behind both.

    python -m tests.learning.trade_offs front --seeds 0 1
    python -m tests.learning.trade_offs hidden --seeds 0 1 2 3 4
    python -m tests.learning.trade_offs times

`front` trains MPO on cartpole swingup, where a decision lasts four frames, by return and by action cost, for
five bounds of the cost. `hidden` trains SAC on the swingup with an actuator whose gain changes with each
episode. The policy sees the last three positions; the critic sees gain and velocity too, or does not. At the
end it prints, paired by seed, the mean return over the run's evaluations and the error of the trained critic.
Each run has a folder and continues there if it was stopped; `minerva report` takes these folders. `times`
prints the CPU time of a learner step with 1, 2 and 4 objectives.
"""

import argparse
import contextlib
import dataclasses
import json
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import dm_env
import numpy as np
import torch
import tree

from minerva_acme import builders, core, counting, environments, experiments, specs, testing, types, wrappers
from minerva_acme.agents import mpo, sac
from minerva_acme.runs import run_curves
from minerva_acme.wrappers.base import EnvironmentWrapper

from . import offline

TASK = "dm_control/cartpole/swingup"
FRONT_TASK = f"{TASK}/repeat=4"
COST_EPSILONS = (0.001, 0.01, 0.1, 0.3, 1.0)  # the return's is 0.1
HIDDEN = ("gain", "velocity")
NUM_STEPS = {"front": 15_000, "hidden": 30_000}


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
    return environments.make_training_environment(ActionCost(environments.make(FRONT_TASK, seed=seed)))


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
        chosen = {"objectives": ("return", "cost"), "objective_epsilons": (0.1, epsilon)}
        config = dataclasses.replace(mpo.PRESETS["demo"], **chosen, **settings)
        _run(mpo.MPOBuilder(config), make_costly, directory / f"cost{epsilon:g}-seed{seed}", seed, steps)


class KeepingBuilder(sac.SACBuilder):
    """SAC that keeps the networks which its learner trains."""

    kept: sac.SACNetworks

    def make_learner(self, parts: builders.LearnerParts[sac.SACNetworks]) -> core.Learner:
        self.kept = parts.networks
        return super().make_learner(parts)


def run_hidden(
    directory: pathlib.Path,
    seed: int,
    steps: int,
    *,
    num_evaluations: int = 10,
    num_episodes: int = 5,
    num_tail_steps: int = 500,
    **settings: Any,
) -> dict[str, dict[str, float]]:
    """Trains SAC with and without the critic's part.

    Returns:
        For `seen` and `unseen`, the mean return over the run's evaluations, `area`, and the `critic_error`,
        both of which are also kept in the run's folder.
    """
    measured = {}
    for name, make in (("seen", make_seen), ("unseen", make_unseen)):
        folder = directory / f"{name}-seed{seed}"
        if not (folder / "measured.json").exists():
            names = HIDDEN if name == "seen" else ()
            config = dataclasses.replace(sac.PRESETS["control"], critic_observations=names, **settings)
            builder = KeepingBuilder(config)
            _run(builder, make, folder, seed, steps, num_evaluations, num_episodes)
            area = run_curves.read_curve(folder, "evaluator/episode_return").values.mean()
            with contextlib.closing(make(10_000 + seed)) as environment:
                error = critic_error(
                    builder.kept,
                    environment,
                    builder.config.discount,
                    num_episodes=2 * num_episodes,
                    num_tail_steps=num_tail_steps,
                    seed=seed,
                )
            numbers = {"area": float(area), "critic_error": error}
            (folder / "measured.json").write_text(json.dumps(numbers), encoding="utf-8")
        measured[name] = json.loads((folder / "measured.json").read_text(encoding="utf-8"))
        print(folder.name, measured[name], flush=True)
    return measured


@torch.no_grad()
def critic_error(
    nets: sac.SACNetworks,
    environment: dm_env.Environment,
    discount: float,
    *,
    num_episodes: int,
    num_tail_steps: int,
    seed: int = 0,
) -> float:
    """Compares the critic with the soft returns of the policy that it was trained for.

        G_t = r_t + sum_k d^k (r_{t+k} - alpha log pi(a_{t+k} | s_{t+k})),  a ~ pi

    Args:
        nets: SAC's networks.
        environment: The environment, whose episodes are cut off and longer than `num_tail_steps`.
        discount: Gamma.
        num_episodes: The number of episodes played.
        num_tail_steps: The steps at an episode's end that only count as what follows earlier ones.
        seed: The seed of the policy's draws.

    Returns:
        The root mean square of Q(s, a) - G.
    """
    generator = torch.Generator().manual_seed(seed)
    errors = []
    for _ in range(num_episodes):
        timestep, values, rewards, bonuses = environment.reset(), [], [], []
        while not timestep.last():
            observation = tree.map_structure(lambda leaf: torch.as_tensor(leaf)[None], timestep.observation)
            action, log_prob = nets.policy(observation).sample_and_log_prob(generator)
            values.append(float(nets.critic(observation, action).mean()))
            bonuses.append(-float(nets.temperature() * log_prob))
            timestep = environment.step(action[0].numpy())
            rewards.append(float(timestep.reward))
        soft_return, returns = 0.0, []
        for reward, bonus in zip(reversed(rewards), reversed(bonuses), strict=True):
            returns.append(reward + discount * soft_return)
            soft_return = returns[-1] + bonus
        returns.reverse()
        errors += [value - found for value, found in zip(values, returns, strict=True)][:-num_tail_steps]
    return float(np.sqrt(np.mean(np.square(errors))))


def _print_differences(measured: Sequence[Mapping[str, Mapping[str, float]]]) -> None:
    for metric in measured[0]["seen"]:
        means = {name: np.mean([found[name][metric] for found in measured]) for name in measured[0]}
        mean, half = offline.interval([found["seen"][metric] - found["unseen"][metric] for found in measured])
        print(
            f"{metric}: seen {means['seen']:.4g}, unseen {means['unseen']:.4g}, "
            f"paired difference {mean:.4g} +- {half:.4g} (95 % interval)",
            flush=True,
        )


def _run(
    builder: Any,
    factory: Any,
    directory: pathlib.Path,
    seed: int,
    steps: int,
    num_evaluations: int = 10,
    num_episodes: int = 5,
) -> None:
    result = experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=builder,
            environment_factory=factory,
            directory=directory,
            num_env_steps=steps,
            seed=seed,
            replay="memory",
            evaluation_period=max(1, steps // num_evaluations),
            evaluation_episodes=num_episodes,
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
    config = dataclasses.replace(
        mpo.PRESETS["control"], objectives=names, objective_epsilons=(0.1,) * num_objectives
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
    parser.add_argument("--num-env-steps", type=int)
    parser.add_argument("--directory", type=pathlib.Path, default=pathlib.Path("runs/trade_offs"))
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if chosen.what == "times":
        for num, milliseconds in step_times().items():
            print(f"{num} objectives: {milliseconds:.1f} ms of CPU a step", flush=True)
        return
    folder, steps = chosen.directory / chosen.what, chosen.num_env_steps or NUM_STEPS[chosen.what]
    if chosen.what == "front":
        for seed in chosen.seeds:
            run_front(folder, seed, steps)
    else:
        _print_differences([run_hidden(folder, seed, steps) for seed in chosen.seeds])


if __name__ == "__main__":
    # By its own name, under which a run's folder finds the environments again.
    from tests.learning import trade_offs

    trade_offs.main()
