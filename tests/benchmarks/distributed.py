"""The cost of several processes compared with one: CPU time per node, memory, bytes, time to the first step.

Run `python -m tests.benchmarks.distributed` in the repository's root, on an idle machine. Each run trains SAC
in new processes, and the variants take turns. docs/performance.md has the numbers that it prints.
"""

import argparse
import contextlib
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import numpy as np

from minerva_acme import specs, testing
from minerva_acme.distributed import graph
from tests.distributed import killing

from . import machine

_TICKS = os.sysconf("SC_CLK_TCK")
_WARM_LEARNER_STEPS = 200  # before the measurement begins, so that one-time setup is done
_LIMIT_SECONDS = 600


class Variant(NamedTuple):
    """A run to measure."""

    num_actors: int  # 0: one process, without an engine
    samples_per_insert: float
    environment: str  # cartpole, or fake: an environment without cost, of the size of cheetah

    def __str__(self) -> str:
        actors = f"{self.num_actors} actors" if self.num_actors else "one process"
        return f"{actors}, {self.environment}, {self.samples_per_insert:g} samples per insert"


VARIANTS = (
    Variant(0, 8.0, "cartpole"),
    Variant(1, 8.0, "cartpole"),
    Variant(2, 8.0, "cartpole"),
)
_COSTS = (
    # The difference of these two separates the cost of an item from the cost of a sample.
    Variant(2, 2.0, "fake"),
    Variant(2, 64.0, "fake"),
)


_CALLS = {"poll": "a poll for newer weights without any", "weights": "a request for weights of 1 MB"}
_CALLERS = 4


class Sample(NamedTuple):
    """A measurement of all processes of a run at one time."""

    wall: float  # seconds
    cpu: dict[str, float]  # seconds so far, by node; `other` is all processes that are not nodes
    loopback_bytes: int
    env_steps: int
    learner_steps: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="to measure each run")
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a variant, in this process
    arguments = parser.parse_args()
    if arguments.one:
        from tests.benchmarks import distributed  # by its module name, which Ray's workers import

        if arguments.one in _CALLS:
            distributed._run_calls(arguments.one, arguments.seconds, arguments.output)
        else:
            distributed._run(Variant(*json.loads(arguments.one)), arguments.seconds, arguments.output)
        return
    runs: dict[Variant, list[dict[str, Any]]] = {variant: [] for variant in (*VARIANTS, *_COSTS)}
    for number in range(arguments.rounds):
        order = list(runs)
        for variant in order if number % 2 == 0 else reversed(order):
            runs[variant].append(_start(json.dumps(variant), arguments.seconds))
            print(f"{variant}: {json.dumps(runs[variant][-1])}", file=sys.stderr, flush=True)
    calls = {name: _start(name, arguments.seconds / 2) for name in _CALLS}
    report = {
        "machine": machine.describe(),
        "rows": [{**variant._asdict(), **_median(of_it)} for variant, of_it in runs.items()],
        "calls": calls,
    }
    _show(report["rows"])
    for name, what in _CALLS.items():
        print(
            f"\nA node answers {what}: {calls[name]['calls_per_second']:.0f}/s to {_CALLERS} callers, "
            f"CPU {calls[name]['cpu_us_per_call']:.0f} us each"
        )
    if arguments.output:
        arguments.output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _show(rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        variant = Variant(row["num_actors"], row["samples_per_insert"], row["environment"])
        print(
            f"\n{variant}: {row['env_steps_per_second']:.0f} environment and "
            f"{row['learner_steps_per_second']:.0f} learner steps/s; CPU {row['cpu_us_per_env_step']:.0f} us "
            f"per environment step; {row['loopback_bytes_per_env_step']:.0f} bytes per environment step over "
            f"loopback; first learner step after {row['first_learner_step_seconds']:.1f} s"
        )
        for name in row["cpu_seconds_per_second"]:
            print(
                f"    {name:10} {row['cpu_seconds_per_second'][name]:6.3f} CPU s/s "
                f"{row['memory_mb'].get(name, 0.0):6.0f} MB"
            )


def _median(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the median of each number, including numbers in nested mappings."""
    result: dict[str, Any] = {}
    for name, value in rows[0].items():
        if isinstance(value, Mapping):
            keys = [key for key in value if all(key in row[name] for row in rows)]
            result[name] = _median([{key: row[name][key] for key in keys} for row in rows])
        else:
            result[name] = statistics.median(row[name] for row in rows)
    return result


def _start(what: str, seconds: float) -> dict[str, Any]:
    """Measures a run in new processes."""
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder, "result.json")
        words = ["--one", what, "--seconds", str(seconds), "--output", str(output)]
        environment = {**os.environ, killing.MARK: uuid.uuid4().hex, "RAY_AUTH_TOKEN_PATH": f"{folder}/token"}
        environment["PYTHONPATH"] = os.getcwd()
        pathlib.Path(folder, "token").write_text(uuid.uuid4().hex)
        subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.distributed", *words],
            env=environment,
            check=True,
            timeout=_LIMIT_SECONDS,
        )
        result: dict[str, Any] = json.loads(output.read_text())
        return result


def _run(variant: Variant, seconds: float, output: pathlib.Path) -> None:
    from minerva_acme import distributed, experiments

    started_at = time.time() - _age_seconds()
    with tempfile.TemporaryDirectory() as folder:
        config = _config(variant, pathlib.Path(folder, "run"))
        meter = _Meter(variant, seconds, started_at)
        if variant.num_actors:
            distributed.run_distributed_experiment(config, meter, num_actors=variant.num_actors)
        else:
            experiments.run_experiment(config, meter)
        output.write_text(json.dumps(meter.result()))


class Answering(graph.Part):
    """A node that answers calls."""

    exports = ("poll", "weights")

    def __init__(self, context: graph.Context) -> None:
        """Args: context: The node's context."""
        self._stop = context.stop
        self._weights = graph.Shared(0, bytes(1_000_000))

    def run(self) -> None:
        self._stop.wait()

    def poll(self) -> None:
        """Returns None: there are no newer weights."""

    def weights(self) -> graph.Shared:
        """Returns 1 MB."""
        return self._weights


def _run_calls(method: str, seconds: float, output: pathlib.Path) -> None:
    """Measures the cost of calls for the node that answers them."""
    from minerva_acme import distributed

    engine = distributed.RayEngine()
    engine.connect(num_cpus=1)
    node = graph.Node(name="it", factory="tests.benchmarks.distributed:Answering", num_cpus=0.0)
    launched = engine.launch(graph.Program(nodes=(node,)))
    launched.start("it", 0)
    handle = launched.handle("it")
    try:
        deadline = time.monotonic() + 60.0
        while True:
            try:
                handle.call(method)
                break
            except graph.NodeSilence:
                if time.monotonic() > deadline:
                    raise
                launched.wait(0.1)
        pid = killing.ask("it")["pid"]
        end = time.monotonic() + seconds
        began, cpu = time.monotonic(), _cpu_seconds(pid)

        def ask() -> int:
            mine, number = launched.handle("it"), 0
            while time.monotonic() < end:
                mine.call(method)
                number += 1
            return number

        with futures.ThreadPoolExecutor(_CALLERS) as pool:
            number = sum(pool.map(lambda _: ask(), range(_CALLERS)))
        result = {
            "calls_per_second": number / (time.monotonic() - began),
            "cpu_us_per_call": (_cpu_seconds(pid) - cpu) / number * 1e6,
        }
    finally:
        launched.close()
        engine.close()
    output.write_text(json.dumps(result))


def _config(variant: Variant, directory: pathlib.Path) -> Any:
    from minerva_acme import experiments
    from minerva_acme.agents import sac

    builder = sac.SACBuilder(
        sac.SACConfig(batch_size=64, samples_per_insert=variant.samples_per_insert, min_replay_size=1_000)
    )
    return experiments.ExperimentConfig(
        builder=builder,
        environment_factory=functools.partial(_make_environment, variant.environment),
        directory=directory,
        num_env_steps=10_000_000,
        evaluation_period=0,
        checkpoint_period=0,
        tensorboard=False,
        replay="reverb",
        device="cpu",
    )


def _make_environment(name: str, seed: int) -> Any:
    from minerva_acme import environments

    if name == "cartpole":
        return environments.make_training_environment("dm_control/cartpole/swingup", seed=seed)

    return _Fake(
        episode_length=1_000,
        observation_spec=specs.Array((17,), np.float32, name="observation"),
        action_spec=specs.BoundedArray((6,), np.float32, -1.0, 1.0, name="action"),
        truncates=True,
        seed=seed,
    )


class _Fake(testing.FakeEnvironment):
    """An environment that does not keep its timesteps."""

    def reset(self) -> Any:
        self.timesteps.clear()
        self.actions.clear()
        return super().reset()


class _Meter:
    """A callback that measures a run after its warm-up, and then stops it."""

    def __init__(self, variant: Variant, seconds: float, started_at: float) -> None:
        self._variant = variant
        self._seconds = seconds
        self._started_at = started_at
        self._first: float | None = None
        self._begin: Sample | None = None
        self._end: Sample | None = None
        self._memory: dict[str, float] = {}
        self._nodes: dict[int, str] = {}

    def __call__(self, progress: Any) -> None:
        from minerva_acme import experiments

        if progress.learner_steps and self._first is None:
            self._first = time.time() - self._started_at
        if self._begin is None:
            if progress.learner_steps >= _WARM_LEARNER_STEPS:
                self._nodes = self._find_nodes(progress)
                self._begin = self._look(progress)
        elif self._end is None and time.monotonic() - self._begin.wall >= self._seconds:
            self._end = self._look(progress)
            self._memory = _add_up({pid: _memory_mb(pid) for pid in _marked()}, self._nodes)
            raise experiments.StopRun("all is measured")

    def result(self) -> dict[str, Any]:
        """Returns the measurements."""
        assert self._begin and self._end and self._first
        wall = self._end.wall - self._begin.wall
        env_steps = self._end.env_steps - self._begin.env_steps
        cpu = {name: self._end.cpu[name] - self._begin.cpu.get(name, 0.0) for name in self._end.cpu}
        transferred = self._end.loopback_bytes - self._begin.loopback_bytes
        return {
            "env_steps_per_second": env_steps / wall,
            "learner_steps_per_second": (self._end.learner_steps - self._begin.learner_steps) / wall,
            "cpu_us_per_env_step": sum(cpu.values()) / env_steps * 1e6,
            "loopback_bytes_per_env_step": transferred / env_steps,
            "first_learner_step_seconds": self._first,
            "cpu_seconds_per_second": {name: value / wall for name, value in cpu.items()},
            "memory_mb": self._memory,
        }

    def _look(self, progress: Any) -> Sample:
        return Sample(
            time.monotonic(),
            _add_up({pid: _cpu_seconds(pid) for pid in _marked()}, self._nodes),
            _loopback_bytes(),
            progress.env_steps,
            progress.learner_steps,
        )

    def _find_nodes(self, progress: Any) -> dict[int, str]:
        if not self._variant.num_actors:
            return {os.getpid(): "process"}
        names = [name for name in progress.nodes if name != "waits"]
        return {**{killing.ask(name)["pid"]: name for name in names}, os.getpid(): "driver"}


def _add_up(values: Mapping[int, float], nodes: Mapping[int, str]) -> dict[str, float]:
    result: dict[str, float] = {}
    for pid, value in values.items():
        name = nodes.get(pid, "other")
        result[name] = result.get(name, 0.0) + value
    return result


def _marked() -> list[int]:
    return [os.getpid(), *killing.processes(os.environ[killing.MARK])]


def _stat(pid: int) -> list[str]:
    """Returns the fields of a process from the third on (proc(5)), or none if it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _cpu_seconds(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS if fields else 0.0


def _age_seconds() -> float:
    uptime = float(pathlib.Path("/proc/uptime").read_text().split()[0])
    return uptime - int(_stat(os.getpid())[19]) / _TICKS


def _memory_mb(pid: int) -> float:
    """Returns the memory of a process; shared memory is divided among the processes that share it."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1000
    return 0.0


def _loopback_bytes() -> int:
    for line in pathlib.Path("/proc/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "lo":
            return int(numbers.split()[0])
    return 0


if __name__ == "__main__":
    main()
