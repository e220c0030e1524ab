"""A step of the actor loop on cheetah run, with one item in Reverb per step, and without replay."""

import contextlib
from collections.abc import Iterator

from . import frame


@contextlib.contextmanager
def make() -> Iterator[frame.Variants]:
    from minerva_acme import specs
    from minerva_acme.agents import mpo

    from . import actor_setup, mpo_setup

    config = mpo_setup.PLAIN_CONFIG
    builder = mpo.MPOBuilder(config)
    with contextlib.ExitStack() as stack:
        with contextlib.closing(actor_setup.make_environment()) as environment:
            spec = specs.make_environment_spec(environment)
        client = stack.enter_context(actor_setup.make_client(builder, spec))
        yield {
            "plain": actor_setup.make_plain_loop(config, client, stack).step,
            "ours": actor_setup.make_loop(builder, client, stack).step,
            "plain, no replay": actor_setup.make_plain_loop(config, None, stack).step,
            "ours, no replay": actor_setup.make_loop(builder, None, stack).step,
            "environment alone": actor_setup.make_plain_loop(config, None, stack, acts=False).step,
        }


BENCHMARK = frame.Benchmark(
    name="actor_loop",
    unit="environment step",
    make=make,
    reference="plain",
    calls_per_block=1000,
    goals={"ours": 2.5, "ours, no replay": 4.5},
    threads=(1,),
)
