"""Runs benchmarks: `python -m tests.benchmarks --help`, in the repository's root."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

from . import frame, machine, recorded, registry, report

_SECONDS = 20.0


def main() -> int:
    arguments = _parse()
    if arguments.worker:
        _work(arguments.names[0], arguments.threads[0], arguments.seconds, arguments.output)
        return 0
    benchmarks = registry.load(arguments.names)
    results: dict[str, dict[str, Any]] = {}
    for benchmark in benchmarks:
        for threads in arguments.threads or benchmark.threads:
            print(f"{benchmark.name}, {threads} thread{'s'[: threads > 1]} ...", flush=True)
            key = f"{benchmark.name}/{threads}"
            results[key] = _run(benchmark.name, threads, arguments.seconds)
            report.show(benchmark, threads, results[key])
            if arguments.check and recorded.compare(key, results[key]):
                print("Below the recorded ratio: measuring again, for twice as long.", flush=True)
                results[key] = _run(benchmark.name, threads, 2.0 * arguments.seconds)
                report.show(benchmark, threads, results[key])
    run = {"machine": machine.describe(), "command": _command(), "results": results}
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(run, indent=2) + "\n", encoding="utf-8")
        print(f"Written to {arguments.output}")
    if arguments.record:
        recorded.update(run)
        print(f"Recorded in {recorded.PATH}")
    if arguments.check:
        failures = [line for key, result in results.items() for line in recorded.compare(key, result)]
        print("\n".join(failures) or f"No ratio is more than {recorded.BAND:.0%} below the recorded one.")
        return int(bool(failures))
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=main.__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(registry.names())}; all by default")
    parser.add_argument("--threads", type=int, nargs="+", help="torch threads; by default the benchmark's")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="to measure each benchmark")
    parser.add_argument("--output", type=pathlib.Path, help="a JSON file to write")
    parser.add_argument("--check", action="store_true", help="fail if a ratio is below the recorded one")
    parser.add_argument("--record", action="store_true", help="record the ratios to check against")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _command() -> str:
    return " ".join(["python -m tests.benchmarks", *sys.argv[1:]])


def _run(name: str, threads: int, seconds: float) -> dict[str, Any]:
    """Runs one benchmark in a new process, which sets the number of threads before it imports torch."""
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder, "result.json")
        options = ["--worker", "--threads", str(threads), "--seconds", str(seconds), "--output", str(output)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks", name, *options],
            env=environment,
            cwd=pathlib.Path(__file__).resolve().parents[2],
        )
        if done.returncode:
            return {"failed": f"exit status {done.returncode}"}
        result: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    return result


def _work(name: str, threads: int, seconds: float, output: pathlib.Path) -> None:
    import torch

    import minerva_acme  # noqa: F401 -- sets the environment that torch reads when it loads

    torch.set_num_threads(threads)
    (benchmark,) = registry.load([name])
    try:
        with benchmark.make() as variants:
            blocks = frame.measure(benchmark, variants, seconds)
    except frame.Skip as reason:
        result: dict[str, Any] = {"skipped": str(reason)}
    else:
        summaries = frame.summarise(blocks, benchmark.reference)
        result = {
            "variants": {name: summary._asdict() for name, summary in summaries.items()},
            "blocks": blocks,  # each [wall, cpu], to investigate surprising ratios
        }
    output.write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
