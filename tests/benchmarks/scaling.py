"""The cost of a learner step of MPO against N, T, batch and width, compared with its arithmetic.

Run `python -m tests.benchmarks.scaling --plot scaling.png` in the repository's root.
"""

import argparse
import dataclasses
import itertools
import json
import pathlib
import statistics
import time
from collections.abc import Sequence
from typing import Any

from . import machine

SWEEPS: dict[str, tuple[tuple[int, ...], Any]] = {
    "num_samples": ((5, 10, 20, 40), lambda value: {"num_samples": value}),
    "sequence_length": ((1, 2, 5, 10), lambda value: {"sequence_length": value}),
    "batch_size": ((64, 128, 256, 512), lambda value: {"batch_size": value}),
    "width": (
        (32, 64, 128, 256),
        lambda value: {
            "policy_layer_sizes": (value,) * 3,
            "critic_layer_sizes": (2 * value, 2 * value, value),
        },
    ),
}


def gigaflops(config: Any, observation_size: int, action_size: int) -> float:
    """Returns the multiplications and additions of all products in a step, in units of 1e9, with Retrace
    targets and the critic's loss on the first step.
    """
    batch, length = config.batch_size, config.sequence_length

    def row(sizes: Sequence[int]) -> int:
        return 2 * sum(a * b for a, b in itertools.pairwise(sizes))

    critic = row([observation_size + action_size, *config.critic_layer_sizes, 1])
    policy = row([observation_size, *config.policy_layer_sizes, 2 * action_size])
    target_rows = batch * (length - 1 + config.retrace_mc_actions * length + config.num_samples)
    # A backward pass has two more products for each product of the forward pass.
    online_critic_rows, online_policy_rows = 3 * batch, 3 * batch * config.m_steps
    return (
        critic * (target_rows + online_critic_rows) + policy * (batch * (length + 1) + online_policy_rows)
    ) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--plot", type=pathlib.Path)
    arguments = parser.parse_args()
    rows = measure(arguments.threads, arguments.rounds)
    print(f"{'setting':16} {'value':>6} {'GFLOP':>7} {'wall ms':>8} {'CPU ms':>8} {'GFLOP/CPU s':>12}")
    for row in rows:
        print(
            f"{row['setting']:16} {row['value']:6} {row['gigaflops']:7.2f} {row['wall'] * 1e3:8.1f} "
            f"{row['cpu'] * 1e3:8.1f} {row['gigaflops'] / row['cpu']:12.0f}"
        )
    if arguments.output:
        run = {"machine": machine.describe(), "threads": arguments.threads, "rows": rows}
        arguments.output.write_text(json.dumps(run, indent=2) + "\n", encoding="utf-8")
    if arguments.plot:
        plot(rows, arguments.plot)


def measure(threads: int, rounds: int) -> list[dict[str, Any]]:
    """Returns the medians of each setting; the learners of a sweep take turns."""
    import torch

    import minerva_acme  # noqa: F401 -- sets the environment that torch reads when it loads
    from minerva_acme.agents import mpo

    from . import mpo_setup

    torch.set_num_threads(threads)
    spec = mpo_setup.make_spec()
    rows = []
    for setting, (values, overrides) in SWEEPS.items():
        configs = [dataclasses.replace(mpo.MPOConfig(), **overrides(value)) for value in values]
        learners = [
            mpo_setup.make_learner(spec, config, [mpo_setup.make_batch(spec, config, 0)])
            for config in configs
        ]
        costs: list[list[tuple[float, float]]] = [[] for _ in learners]
        for round_number in range(rounds + 1):
            for learner, cost in zip(learners, costs, strict=True):
                wall, cpu = time.perf_counter(), time.process_time()
                learner.step()
                if round_number:  # the first one warms up
                    cost.append((time.perf_counter() - wall, time.process_time() - cpu))
        for value, config, cost in zip(values, configs, costs, strict=True):
            rows.append(
                {
                    "setting": setting,
                    "value": value,
                    "gigaflops": gigaflops(config, 17, 6),
                    "wall": statistics.median(wall for wall, _ in cost),
                    "cpu": statistics.median(cpu for _, cpu in cost),
                }
            )
    return rows


def plot(rows: list[dict[str, Any]], path: pathlib.Path) -> None:
    """Plots CPU time against each setting, with the line of equal rate through the largest value."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(SWEEPS), figsize=(14, 3.4), layout="constrained", sharey=True)
    ticks = (3, 10, 30, 100, 300)
    for axis, setting in zip(axes, SWEEPS, strict=True):
        points = [row for row in rows if row["setting"] == setting]
        values = [row["value"] for row in points]
        rate = points[-1]["cpu"] / points[-1]["gigaflops"]
        axis.loglog(values, [row["cpu"] * 1e3 for row in points], "o-", label="measured")
        axis.loglog(values, [row["gigaflops"] * rate * 1e3 for row in points], "--", label="arithmetic")
        axis.set_xlabel(setting)
        axis.set_xticks(values, [str(value) for value in values])
        axis.set_yticks(ticks, [str(tick) for tick in ticks])
        axis.grid(axis="y", alpha=0.3)
        axis.minorticks_off()
    axes[0].set_ylabel("CPU ms per learner step")
    axes[0].legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
