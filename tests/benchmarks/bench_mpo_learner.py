"""A learner step of MPO beside the plain update, at the size of dm_control's cheetah."""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from . import frame, processes


@contextlib.contextmanager
def make() -> Iterator[frame.Variants]:
    """256 sequences of 5 steps, policy 256-256-256, critic 512-512-256, N = 20, 8 actions for Retrace."""
    with processes.each_alone(_make_variant, ["plain", *_VARIANTS]) as variants:
        yield variants


def _make_variant(name: str) -> Callable[[], object]:
    from minerva_acme.agents import mpo

    from . import mpo_setup

    spec, config = mpo_setup.make_spec(), mpo.MPOConfig()
    batches = [mpo_setup.make_batch(spec, config, seed) for seed in range(4)]
    if name == "plain":
        plain = mpo_setup.make_plain(spec, config)
        plain_batches = itertools.cycle([mpo_setup.plain_batch(batch) for batch in batches])
        return lambda: plain.update(next(plain_batches))
    return mpo_setup.make_learner(spec, dataclasses.replace(config, **_VARIANTS[name]), batches).step


_VARIANTS: dict[str, dict[str, Any]] = {
    "float32": {},
    "float32, compiled": {"compile": True},
    "bfloat16": {"target_precision": "bfloat16"},
    "bfloat16, compiled": {"target_precision": "bfloat16", "compile": True},
}

BENCHMARK = frame.Benchmark(
    name="mpo_learner",
    unit="learner step",
    make=make,
    reference="plain",
    goals={"float32": 2.5, "bfloat16": 3.7},
    calls_per_block=2,
    is_remote=True,
)
