"""A step of B pendulums: a batch in tensors, and a vector of B environments, with SAC's default networks.

Both act, step and add to replay in memory; with `learner` in the name they also make a learner step after it.
The framework's time is that of the batch less that of the task and the policy, which are variants too.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from minerva_acme import builders, counting, environments, loggers, specs
from minerva_acme.agents import sac
from minerva_acme.replay import memory

from . import frame

_MOST_IN_A_VECTOR = 256  # a step of more takes seconds


def benchmark(num_environments: int) -> frame.Benchmark:
    """Returns the benchmark of B environments."""
    has_vector = num_environments <= _MOST_IN_A_VECTOR
    return frame.Benchmark(
        name=f"batched_{num_environments}",
        unit="environment step",
        make=functools.partial(_make, num_environments),
        reference="vector" if has_vector else "task and policy",
        goals={"batch": 20.0} if num_environments == _MOST_IN_A_VECTOR else {},
        calls_per_block=max(1, min(50, 2**11 // num_environments)),
        units_per_call=num_environments,
        threads=(1,),
    )


@contextlib.contextmanager
def _make(num_environments: int) -> Iterator[frame.Variants]:
    with contextlib.ExitStack() as stack:
        variants: dict[str, Callable[[], object]] = {}
        if num_environments <= _MOST_IN_A_VECTOR:
            variants |= make_loops("vector", make_vector(num_environments), stack)
        pendulums = make_batch(num_environments)
        variants |= make_loops("batch", make_batch(num_environments), stack)
        policy, zeros = make_policy(pendulums), torch.zeros(num_environments, 1)
        newest = [pendulums.reset().newest]

        def task_and_policy() -> None:
            newest[0] = pendulums.step(policy.batch(newest[0]).action).newest

        variants["task"] = lambda: pendulums.step(zeros)
        variants["policy"] = lambda: policy.batch(newest[0])
        variants["task and policy"] = task_and_policy
        yield variants


def make_batch(num_environments: int, device: str = "cpu") -> environments.BatchedPendulum:
    """Makes the pendulums in tensors."""
    generator = torch.Generator(device).manual_seed(0)
    return environments.BatchedPendulum(num_environments, generator=generator, device=device, staggered=True)


def make_vector(num_environments: int) -> environments.VectorEnvironment:
    """Makes a vector of the same task in Gymnasium.

    Raises:
        frame.Skip: Gymnasium is not installed.
    """
    make = functools.partial(environments.make_training_environment, "gymnasium/Pendulum-v1")
    try:
        return environments.make_vector(
            [functools.partial(make, seed=seed) for seed in range(num_environments)], processes=False
        )
    except ImportError as error:
        raise frame.Skip(str(error)) from error


def make_policy(environment: environments.BatchedEnvironment) -> builders.AgentPolicy:
    """Makes the policy that acts in a batch."""
    builder = _make_builder(environment).for_batches(environment.device)
    spec = specs.make_environment_spec(environment)
    networks = builder.make_networks(spec, torch.Generator().manual_seed(1))
    generator = torch.Generator(environment.device).manual_seed(2)
    return builder.make_policy(networks, spec, generator, counter=_past_random_steps())


def make_loops(name: str, environment: Any, stack: contextlib.ExitStack) -> dict[str, Callable[[], object]]:
    """Makes a step of all environments with the parts of a run, also followed by a learner step."""
    stack.callback(environment.close)
    builder, spec = _make_builder(environment), specs.make_environment_spec(environment)
    is_batched, device = isinstance(environment, environments.BatchedEnvironment), torch.device("cpu")
    if is_batched:
        device = environment.device
        builder = builder.for_batches(device)
    tables = builder.make_replay_tables(spec)
    server = stack.enter_context(memory.MemoryServer(tables, seed=0, device=str(device)))
    client = stack.enter_context(server.client())
    networks = builder.make_networks(spec, torch.Generator().manual_seed(1))
    dataset: Any = builder.make_dataset(client, spec, device)
    stack.callback(dataset.close)
    learner = builder.make_learner(
        builders.LearnerParts(
            networks=networks,
            dataset=dataset,
            spec=spec,
            counter=counting.Counter(),
            logger=loggers.Dispatcher([]),
            generator=torch.Generator(device).manual_seed(3),
            device=device,
        )
    )
    counter = _past_random_steps()
    generator = torch.Generator(device).manual_seed(2)
    policy = builder.make_policy(networks, spec, generator, counter=counter)
    loop: Any
    if is_batched:
        adder = stack.enter_context(builder.make_batched_adder(client, spec))
        actor = builder.make_batched_actor(policy, learner, adder)
        loop = environments.BatchedEnvironmentLoop(environment, actor)
    else:
        adders = [
            stack.enter_context(builder.make_adder(client, spec)) for _ in range(environment.num_environments)
        ]
        loop = environments.VectorEnvironmentLoop(
            environment, builder.make_vector_actor(policy, learner, adders)
        )

    def step_and_learn() -> None:
        loop.step()
        learner.step()

    while client.table_info(tables[0].name).size < builder.config.min_replay_size:
        loop.step()
    return {name: loop.step, f"{name}, learner": step_and_learn}


def _make_builder(environment: Any) -> sac.SACBuilder:
    return sac.SACBuilder(
        sac.SACConfig(
            num_environments=environment.num_environments, min_replay_size=256, max_replay_size=100_000
        )
    )


def _past_random_steps() -> counting.Counter:
    counter = counting.Counter()
    counter.increment(actor_steps=10**9)
    return counter
