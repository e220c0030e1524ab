"""A learner step of MPO on CUDA: the plain update, ours, and ours as one CUDA graph."""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from . import frame, processes

_STEPS = 20


@contextlib.contextmanager
def make() -> Iterator[frame.Variants]:
    """256 sequences of 5 steps, as for the CPU; batches lie on the device."""
    import torch

    if not torch.cuda.is_available():
        raise frame.Skip("torch finds no CUDA device")
    with processes.each_alone(_make_variant, ["plain", *_VARIANTS]) as variants:
        yield variants


def _make_variant(name: str) -> Callable[[], object]:
    import torch

    from minerva_acme.agents import mpo

    from . import mpo_setup

    device = torch.device("cuda")
    spec, config = mpo_setup.make_spec(), mpo.MPOConfig()
    batches = [mpo_setup.make_batch(spec, config, seed, device) for seed in range(4)]
    step: Callable[[], object]
    if name == "plain":
        plain = mpo_setup.make_plain(spec, config, device)
        plain_batches = itertools.cycle([mpo_setup.plain_batch(batch) for batch in batches])

        def step() -> object:
            return plain.update(next(plain_batches))
    else:
        config = dataclasses.replace(config, **_VARIANTS[name])
        step = mpo_setup.make_learner(spec, config, batches, device).step

    def steps() -> None:
        for _ in range(_STEPS):
            step()
        torch.cuda.synchronize()

    return steps


_VARIANTS: dict[str, dict[str, Any]] = {
    "eager": {},
    "graph": {"cuda_graph": True},
    "graph, bfloat16": {"cuda_graph": True, "target_precision": "bfloat16"},
}

BENCHMARK = frame.Benchmark(
    name="mpo_learner_cuda",
    unit="learner step",
    make=make,
    reference="plain",
    goals={"graph": 10.0},
    units_per_call=_STEPS,
    threads=(1,),
    is_remote=True,
)
