"""Runs that are killed or stopped many times, and runs that last: `python -m tests.endurance --help`."""

import argparse
import os
import pathlib
import signal
import sys
import tempfile
from collections.abc import Sequence

from tests.benchmarks import machine

from . import soak, stops, storm, training

_DEFAULTS = {signal.SIGINT: signal.default_int_handler}


def main(arguments: Sequence[str] | None = None) -> int:
    """Shows what was measured; returns 1 where something was not as promised."""
    chosen = _parse(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # what TensorFlow says when it is imported
    for number in stops.SIGNALS:  # nohup has SIGHUP ignored, which those that are stopped would inherit
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _DEFAULTS.get(number, signal.SIG_DFL))
    print(*(f"{name} {value};" for name, value in machine.describe().items()), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        table, faults = chosen.measure(chosen, pathlib.Path(chosen.directory or folder))
    print(table)
    print("\n".join(f"FAULT in {fault}" for fault in faults) or "No fault.", flush=True)
    return int(bool(faults))


def _storm(chosen: argparse.Namespace, folder: pathlib.Path) -> tuple[str, list[str]]:
    storm.begin_processes(store for _, store in chosen.runs)
    results = [
        storm.run(agent, store, folder / f"{agent}_{store}", num_kills=chosen.kills, seed=chosen.seed)
        for agent, store in chosen.runs
    ]
    storm.end_processes()
    return storm.table(results), [fault for result in results for fault in result.faults]


def _stops(chosen: argparse.Namespace, folder: pathlib.Path) -> tuple[str, list[str]]:
    storm.begin_processes(store for _, store in chosen.runs)
    results = [
        stops.run(
            f"{agent}/{store}", folder / f"{agent}_{store}", num_signals=chosen.signals, seed=chosen.seed
        )
        for agent, store in chosen.runs
    ]
    storm.end_processes()
    return stops.table(results), [fault for result in results for fault in result.faults]


def _soak(chosen: argparse.Namespace, folder: pathlib.Path) -> tuple[str, list[str]]:
    results = [
        soak.run(agent, store, folder / f"{agent}_{store}", seconds=60.0 * chosen.minutes)
        for agent, store in chosen.runs
    ]
    return soak.table(results), [fault for result in results for fault in result.faults]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.endurance", description=__doc__)
    commands = parser.add_subparsers(required=True)
    storms = commands.add_parser("storm", help="kill trainings, resume them and look what became of them")
    storms.add_argument("--kills", type=int, default=20, help="of each training")
    storms.add_argument("--seed", type=int, default=0, help="of the moments")
    storms.set_defaults(
        measure=_storm, default=[f"{a}/{s}" for a in training.AGENTS for s in training.STORES]
    )
    of_stops = commands.add_parser(
        "stops", help="stop trainings that take long by signals; nothing may be lost"
    )
    of_stops.add_argument("--signals", type=int, default=20, help="for each training")
    of_stops.add_argument("--seed", type=int, default=0, help="of the moments and times")
    of_stops.set_defaults(measure=_stops, default=list(stops.TRAININGS))
    soaks = commands.add_parser("soak", help="measure memory, threads and open files of long trainings")
    soaks.add_argument("--minutes", type=float, default=30.0, help="of each training")
    soaks.set_defaults(measure=_soak, default=["mpo/memory", "mpo/reverb"])
    agents = ", ".join(training.AGENTS)
    for command in (storms, of_stops, soaks):
        command.add_argument("runs", nargs="*", help=f"agent/store: {agents} on memory or reverb")
        command.add_argument("--directory", help="a new folder in which the trainings are kept")
    chosen = parser.parse_args(arguments)
    chosen.runs = [run.partition("/")[::2] for run in chosen.runs or chosen.default]
    for agent, store in chosen.runs:
        if chosen.measure is _stops and f"{agent}/{store}" == stops.RAY:
            continue
        if agent not in training.AGENTS or store not in training.STORES:
            parser.error(f"a run must be like mpo/memory, got {agent}/{store}")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
