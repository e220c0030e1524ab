"""Learner steps, and steps of B pendulums in tensors, on a CPU and on a GPU.

    python -m tests.benchmarks.devices --devices cpu cuda --threads 1

Learners have their default sizes, for observations and actions of the size of cheetah's. The pendulums'
variants come from `batched_setup`. All take turns. A block ends when the device has done its work. A line
shows wall time in microseconds: the median of the blocks, the least and the most.
"""

import argparse
import contextlib
import functools
import itertools
import statistics
import time
from collections.abc import Callable, Mapping

import torch

import minerva_acme  # noqa: F401 -- sets the environment that torch reads when it loads
from minerva_acme.agents import mpo

from . import batched_setup, learner_setup, machine, mpo_setup

Call = Callable[[], object]

_CALLS = 5  # of a block


def _make_mpo(config: mpo.MPOConfig, device: str) -> Call:
    spec = mpo_setup.make_spec()
    batches = [mpo_setup.make_batch(spec, config, seed) for seed in range(4)]
    return mpo_setup.make_learner(spec, config, batches, device=device).step


LEARNERS: Mapping[str, Callable[[str], Call]] = {
    "mpo": functools.partial(_make_mpo, mpo.MPOConfig()),
    "mpo, batch of 1,024": functools.partial(_make_mpo, mpo.MPOConfig(batch_size=1024)),
    **{
        agent: functools.partial(learner_setup.make_step, agent, "auto", None)
        for agent in ("sac", "td3", "d4pg", "dqn", "bc", "crr", "ppo")
    },
    **{
        f"{agent}, compiled": functools.partial(learner_setup.make_step, agent, "compile", None)
        for agent in ("sac", "td3", "d4pg", "dqn")
    },
    "sac, batch of 4,096": functools.partial(learner_setup.make_step, "sac", "auto", None, batch_size=4096),
}


def make_pendulums(num_environments: int, device: str, stack: contextlib.ExitStack) -> dict[str, Call]:
    """Makes the variants of a step of a batch, by name."""
    pendulums = batched_setup.make_batch(num_environments, device)
    variants = batched_setup.make_loops("batch", batched_setup.make_batch(num_environments, device), stack)
    policy, zeros = batched_setup.make_policy(pendulums), torch.zeros(num_environments, 1, device=device)
    newest = pendulums.reset().newest
    variants["task"] = lambda: pendulums.step(zeros)
    variants["policy"] = lambda: policy.batch(newest)
    return {f"{num_environments} pendulums, {name}": function for name, function in variants.items()}


def measure(calls: Mapping[tuple[str, str], Call], num_blocks: int) -> None:
    """Measures calls, by name and device, in turn, and prints a line for each."""
    found: dict[tuple[str, str], list[float]] = {key: [] for key in calls}
    for number in range(1 + num_blocks):  # the first one to warm up
        for (name, device), call in calls.items():
            seconds = _seconds(call, device)
            if number:
                found[name, device].append(1e6 * seconds)
    for (name, device), times in found.items():
        print(
            f"{name:30} {device:5} {statistics.median(times):10.0f} us"
            f" ({min(times):.0f} to {max(times):.0f})",
            flush=True,
        )


def _seconds(call: Call, device: str) -> float:
    wait = torch.cuda.synchronize if torch.device(device).type == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    for _ in range(_CALLS):
        call()
    wait()
    return (time.perf_counter() - start) / _CALLS


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.devices", description=__doc__)
    parser.add_argument("--devices", nargs="+", default=["cpu", "cuda"])
    parser.add_argument("--learners", nargs="*", choices=[*LEARNERS], default=[*LEARNERS])
    parser.add_argument("--sizes", type=int, nargs="*", default=[256, 4096, 65536], help="of the batches")
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1, help="torch threads of the CPU")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    print(machine.describe(), flush=True)
    learners = itertools.product(chosen.learners, chosen.devices)
    measure({(name, device): LEARNERS[name](device) for name, device in learners}, chosen.blocks)
    for size in chosen.sizes:
        with contextlib.ExitStack() as stack:
            calls = {
                (name, device): call
                for device in chosen.devices
                for name, call in make_pendulums(size, device, stack).items()
            }
            measure(calls, chosen.blocks)


if __name__ == "__main__":
    main()
