"""A learner step of MPO on CUDA: the plain update, ours, and ours as one CUDA graph."""

import contextlib
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
    with processes.each_alone(_make_variant, _VARIANTS) as variants:
        yield variants


def _make_variant(name: str) -> Callable[[], object]:
    import torch

    from . import mpo_setup

    step = mpo_setup.make_step(_VARIANTS[name], torch.device("cuda"))

    def steps() -> None:
        for _ in range(_STEPS):
            step()
        torch.cuda.synchronize()

    return steps


_VARIANTS: dict[str, dict[str, Any] | None] = {
    "plain": None,
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
