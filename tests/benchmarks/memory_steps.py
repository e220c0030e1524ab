"""CPU time and memory of a learner step with a memory, and without one from as many learned steps.

    python -m tests.benchmarks.memory_steps

Networks and batches have the sizes of the preset `memory`, observations and actions the sizes of cheetah's.
Each learner has one thread and a process of its own. The LSTM's share is the time of its calls alone, with a
backward pass where the learner makes one, over the time of the step.
"""

import argparse
import contextlib
import copy
import dataclasses
import functools
import itertools
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from minerva_acme import builders, core, counting, environments, replay, specs, testing
from minerva_acme.agents import dqn, mpo, r2d2, sac, td3

from . import mpo_setup

SPEC = mpo_setup.make_spec()
SAC, TD3, MPO, R2D2 = (agent.PRESETS["memory"] for agent in (sac, td3, mpo, r2d2))
R2D2 = dataclasses.replace(R2D2, num_environments=1)


def _without(config: Any, **changes: Any) -> Any:
    return dataclasses.replace(config, memory="none", burn_in=0, **changes)


def _num_learned(config: Any) -> int:
    return int(config.batch_size * config.sequence_length)


BUILDERS: Mapping[tuple[str, bool], builders.AgentBuilder[Any]] = {
    ("sac", True): sac.SACBuilder(SAC),
    ("sac", False): sac.SACBuilder(_without(SAC, batch_size=_num_learned(SAC))),
    ("td3", True): td3.TD3Builder(TD3),
    ("td3", False): td3.TD3Builder(_without(TD3, batch_size=_num_learned(TD3))),
    ("mpo", True): mpo.MPOBuilder(MPO),
    ("mpo", False): mpo.MPOBuilder(_without(MPO)),
    ("r2d2", True): r2d2.R2D2Builder(R2D2),
    ("r2d2", False): dqn.DQNBuilder(
        dqn.DQNConfig(critic_layer_sizes=R2D2.layer_sizes, batch_size=_num_learned(R2D2))
    ),
}
AGENTS = ("sac", "td3", "mpo", "r2d2")


class Measured(NamedTuple):
    """The cost of a learner step."""

    cpu_milliseconds: float
    lstm_milliseconds: float  # the part of the LSTM's calls
    megabytes: int  # growth of the process's peak memory


def make_learner(builder: builders.AgentBuilder[Any], resources: contextlib.ExitStack) -> core.Learner:
    """Makes a learner that uses four batches in turn, of episodes that its untrained policy has played."""
    is_discrete = isinstance(builder, r2d2.R2D2Builder | dqn.DQNBuilder)
    environment = testing.FakeEnvironment(
        episode_length=200,
        observation_spec=SPEC.observations,
        action_spec=specs.DiscreteArray(6) if is_discrete else SPEC.actions,
    )
    spec = specs.make_environment_spec(environment)
    generator = torch.Generator().manual_seed(1)
    networks = builder.make_networks(spec, generator)
    enter: Callable[[Any], Any] = resources.enter_context
    client = enter(enter(replay.make_server(builder.make_replay_tables(spec), "memory", seed=0)).client())
    adder = enter(builder.make_adder(client, spec))
    actor = builder.make_actor(builder.make_policy(networks, spec, generator), adder=adder)
    loop = environments.EnvironmentLoop(environment=environment, actor=actor)
    for _ in range(10):
        loop.run_episode()
    dataset = enter(builder.make_dataset(client, spec, torch.device("cpu")))
    return builder.make_learner(
        builders.LearnerParts(
            networks=networks,
            dataset=itertools.cycle(itertools.islice(dataset, 4)),
            client=client,
            spec=spec,
            counter=counting.Counter(),
            logger=testing.FakeLogger(),
            generator=generator,
            device=torch.device("cpu"),
        )
    )


def lstm_calls(learner: core.Learner) -> list[Callable[[], object]]:
    """Returns the calls of LSTMs in two learner steps, alone and with tensors of their own."""
    calls: list[list[Any]] = []

    def note(layer: nn.Module, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
        if isinstance(layer, nn.LSTM):
            call = [layer, inputs[0].shape, False]
            calls.append(call)
            if outputs[0].requires_grad:
                outputs[0].register_hook(lambda _: call.__setitem__(2, True))

    hook = nn.modules.module.register_module_forward_hook(note)
    learner.step()
    learner.step()
    hook.remove()
    return [functools.partial(_call, copy.deepcopy(layer), shape, learned) for layer, shape, learned in calls]


def _call(layer: nn.LSTM, shape: torch.Size, is_learned_from: bool) -> None:
    with torch.set_grad_enabled(is_learned_from):
        outputs, _ = layer(torch.ones(shape, requires_grad=is_learned_from))
    if is_learned_from:
        outputs.backward(torch.ones_like(outputs))


def measure(agent: str, has_memory: bool, num_blocks: int) -> Measured:
    """Measures the steps of a learner that is alone in its process."""
    torch.set_num_threads(1)
    with contextlib.ExitStack() as resources:
        learner = make_learner(BUILDERS[agent, has_memory], resources)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(4):
            learner.step()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        calls = lstm_calls(learner)
        steps, lstm = [], []
        for _ in range(num_blocks):  # of two steps: TD3 trains its policy in every second
            steps.append(_cpu_milliseconds([learner.step, learner.step]) / 2.0)
            lstm.append(_cpu_milliseconds(calls) / 2.0)
    return Measured(statistics.median(steps), statistics.median(lstm), (peak - before) >> 10)


def _cpu_milliseconds(calls: Sequence[Callable[[], object]]) -> float:
    began = time.process_time()
    for call in calls:
        call()
    return 1e3 * (time.process_time() - began)


def main(arguments: Sequence[str] | None = None) -> dict[tuple[str, bool], Measured]:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.memory_steps", description=__doc__)
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=AGENTS)
    parser.add_argument("--blocks", type=int, default=50, help="pairs of learner steps")
    chosen = parser.parse_args(arguments)
    found = {}
    for variant in itertools.product(chosen.agents, (False, True)):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found[variant] = pool.apply(measure, (*variant, chosen.blocks))
    print("| | without: ms, MB | with a memory: ms, MB | times | LSTM |")
    print("|---|---|---|---|---|")
    for agent in chosen.agents:
        flat, memory = found[agent, False], found[agent, True]
        print(
            f"| {agent} | {flat.cpu_milliseconds:.1f}, {flat.megabytes} "
            f"| {memory.cpu_milliseconds:.1f}, {memory.megabytes} "
            f"| {memory.cpu_milliseconds / flat.cpu_milliseconds:.2f} "
            f"| {memory.lstm_milliseconds / memory.cpu_milliseconds:.0%} |"
        )
    return found


if __name__ == "__main__":
    main()
