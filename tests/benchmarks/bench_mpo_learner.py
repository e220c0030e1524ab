"""A learner step of MPO compared with the plain update, at the size of dm_control's cheetah."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from . import frame, processes


@contextlib.contextmanager
def make() -> Iterator[frame.Variants]:
    """256 sequences of 5 steps, policy 256-256-256, critic 512-512-256, N = 20, 8 actions for Retrace."""
    with processes.each_alone(_make_variant, _VARIANTS) as variants:
        yield variants


def _make_variant(name: str) -> Callable[[], object]:
    from . import mpo_setup

    return mpo_setup.make_step(_VARIANTS[name])


_VARIANTS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "float32": {},
    "bfloat16": {"target_precision": "bfloat16"},
}

BENCHMARK = frame.Benchmark(
    name="mpo_learner",
    unit="learner step",
    make=make,
    reference="plain",
    goals={"float32": 1.5},  # on machines where torch's own products are fast too; see docs/performance.md
    calls_per_block=2,
    is_remote=True,
)
