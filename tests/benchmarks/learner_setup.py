"""Learners with loss functions at their default sizes: plain, by default, and with compiled losses."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from . import frame, processes

_MODES = {"plain": "off", "auto": "auto", "compiled": "compile"}
_OBSERVATION_SIZE, _ACTION_SIZE = 17, 6  # of cheetah


def benchmark(agent: str, unit: str = "learner step", calls_per_block: int = 10) -> frame.Benchmark:
    """Returns the benchmark of a registered agent's learner in three variants, each in its own process."""

    @contextlib.contextmanager
    def make() -> Iterator[frame.Variants]:
        with processes.each_alone(_Maker(agent), _MODES) as variants:
            yield variants

    return frame.Benchmark(
        name=f"{agent}_learner",
        unit=unit,
        make=make,
        reference="plain",
        calls_per_block=calls_per_block,
        is_remote=True,
    )


class _Maker(NamedTuple):
    """Makes a learner step, in the process that runs it."""

    agent: str

    def __call__(self, variant: str) -> Callable[[], object]:
        return make_step(self.agent, _MODES[variant])


class _Sample(NamedTuple):
    data: Any


def make_step(
    agent: str, mode: str, ranks: Any = None, device: str = "cpu", **settings: Any
) -> Callable[[], object]:
    """Makes a learner step that uses four batches in turn.

    Args:
        agent: The agent's name in the registry.
        mode: The value of `acceleration`.
        ranks: The `learners.Ranks` of one of several learners, or None.
        device: The device of the learner and its batches.
        **settings: Other fields of the agent's config.
    """
    import torch
    import tree

    from minerva_acme import builders, counting
    from minerva_acme.agents import registry

    from . import mpo_setup

    entry = registry.find(agent)
    config = entry.config(acceleration=mode, **{"prioritized": False} if agent == "dqn" else {}, **settings)
    builder = entry.builder(config)
    if ranks is not None:
        builder = builder.for_learners(ranks.size)
    spec = _make_spec(is_discrete=agent == "dqn")
    make_batch = _make_rollout if agent == "ppo" else _make_transitions
    batches = [make_batch(spec, builder.config, seed) for seed in range(4)]
    samples = [_Sample(tree.map_structure(lambda leaf: leaf.to(device), batch)) for batch in batches]
    learner = builder.make_learner(
        builders.LearnerParts(
            networks=builder.make_networks(spec, torch.Generator().manual_seed(1)),
            dataset=itertools.cycle(samples),
            client=None,
            spec=spec,
            counter=counting.Counter(),
            logger=mpo_setup.Silent(),
            generator=torch.Generator(device).manual_seed(1),
            device=torch.device(device),
            ranks=ranks,
        )
    )
    learner.step()
    learner.step()  # TD3 trains its policy on every second batch.
    step: Callable[[], object] = learner.step
    return step


def _make_spec(is_discrete: bool) -> Any:
    import numpy as np

    from minerva_acme import specs

    low = np.full(_ACTION_SIZE, -1.0, np.float32)
    return specs.EnvironmentSpec(
        observations=specs.Array((_OBSERVATION_SIZE,), np.float32, name="observation"),
        actions=specs.DiscreteArray(_ACTION_SIZE, name="action")
        if is_discrete
        else specs.BoundedArray((_ACTION_SIZE,), np.float32, low, -low, name="action"),
        rewards=specs.Array((), np.float32, name="reward"),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
    )


def _make_transitions(spec: Any, config: Any, seed: int) -> Any:
    import torch

    from minerva_acme import specs, types

    generator = torch.Generator().manual_seed(seed)
    observation, next_observation = torch.randn(2, config.batch_size, _OBSERVATION_SIZE, generator=generator)
    if isinstance(spec.actions, specs.DiscreteArray):
        action = torch.randint(_ACTION_SIZE, (config.batch_size,), generator=generator)
    else:
        action = torch.rand(config.batch_size, _ACTION_SIZE, generator=generator) * 2.0 - 1.0
    reward = torch.randn(config.batch_size, generator=generator)
    return types.Transition(observation, action, reward, torch.full_like(reward, 0.99), next_observation)


def _make_rollout(spec: Any, config: Any, seed: int) -> Any:
    """Returns steps of one long episode, with a standard normal behaviour policy."""
    import torch

    from minerva_acme import types
    from minerva_acme.agents import acting

    generator = torch.Generator().manual_seed(seed)
    shape = (config.rollout_length, config.num_environments)
    observation, next_observation = torch.randn(2, *shape, _OBSERVATION_SIZE, generator=generator)
    raw_action = torch.randn(*shape, _ACTION_SIZE, generator=generator)
    reward = torch.randn(shape, generator=generator)
    last = torch.zeros(shape)
    last[-1] = 1.0
    return types.Rollout(
        observation=observation,
        action=raw_action.clamp(-1.0, 1.0),
        reward=reward,
        discount=torch.ones(shape),
        next_observation=next_observation,
        first=torch.zeros(shape),
        last=last,
        return_so_far=reward.cumsum(dim=0),
        extras=acting.BehaviourExtras(
            log_prob=-0.5 * raw_action.square().sum(dim=-1) - _ACTION_SIZE * 0.919, raw_action=raw_action
        ),
    )
