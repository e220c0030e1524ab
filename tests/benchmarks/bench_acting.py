"""Selecting an action inside a running loop, in which the environment uses the caches between actions.

An observation goes through a policy of 256-256-256, followed by a sample, its log-density and clipping. The
loops write nothing. "8 at once" is a batch of 8 observations after 8 environment steps, counted as 8 actions.
"""

import contextlib
import time
from collections.abc import Callable, Iterator

from . import frame, profile_step


@contextlib.contextmanager
def make() -> Iterator[frame.Variants]:
    import numpy as np
    import torch

    from minerva_acme import specs
    from minerva_acme.agents import mpo

    from . import actor_setup, mpo_setup

    config = mpo_setup.PLAIN_CONFIG
    builder = mpo.MPOBuilder(config)
    clock = time.perf_counter
    with contextlib.ExitStack() as stack:
        plain, ours = profile_step.Watch(clock), profile_step.Watch(clock)
        plain_loop = actor_setup.make_plain_loop(config, None, stack)
        plain_loop._acting = plain.timed("policy", plain_loop._acting)
        loop = actor_setup.make_loop(builder, None, stack)
        ours.wrap("policy", loop._actor, "select_action")

        environment = actor_setup.make_environment()
        stack.callback(environment.close)
        spec = specs.make_environment_spec(environment)
        networks = builder.make_networks(spec, torch.Generator().manual_seed(1))
        policy = builder.make_policy(networks, spec, torch.Generator().manual_seed(2))
        batches = profile_step.Watch(clock)
        choose = batches.timed("policy", policy.batch)
        action = np.zeros(spec.actions.shape, np.float32)

        def eight_steps() -> None:
            choose(np.stack([environment.step(action).observation for _ in range(8)]))

        yield {
            "plain": _remote(plain_loop.step, plain, 1),
            "ours": _remote(loop.step, ours, 1),
            "ours, 8 at once": _remote(eight_steps, batches, 8),
        }


def _remote(step: Callable[[], object], watch: profile_step.Watch, num_actions: int) -> frame.Remote:
    """Returns the cost of selecting actions only, per action; wall time is used for CPU time."""

    def run(calls: int) -> frame.Block:
        watch.seconds.clear()
        for _ in range(calls // num_actions):
            step()
        return frame.Block(watch.seconds["policy"], watch.seconds["policy"])

    return run


BENCHMARK = frame.Benchmark(
    name="acting",
    unit="action",
    make=make,
    reference="plain",
    calls_per_block=800,
    goals={"ours": 1.0 / 0.42},
    threads=(1,),
    is_remote=True,
)
