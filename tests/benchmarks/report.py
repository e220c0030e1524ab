"""Results as a table."""

from typing import Any

import rich.console
import rich.table

from . import frame


def show(benchmark: frame.Benchmark, threads: int, result: dict[str, Any]) -> None:
    """Prints the table of one benchmark, or why it has no results."""
    console = rich.console.Console(width=110)
    for what in ("skipped", "failed"):
        if what in result:
            console.print(f"{benchmark.name}: {what}: {result[what]}", markup=False)
            return
    table = rich.table.Table(
        title=f"{benchmark.name}, {threads} thread(s): ms per {benchmark.unit}, and times as fast as "
        f"{benchmark.reference}",
        title_justify="left",
    )
    table.add_column("variant")
    columns = ("wall", "p10", "CPU", "p10", "x wall", "x p10", "x CPU", "x p10", "x paired", "goal", "rounds")
    for column in columns:
        table.add_column(column, justify="right")
    for name, values in result["variants"].items():
        summary = frame.Summary(**values)
        goal = benchmark.goals.get(name)
        table.add_row(
            name,
            *(f"{seconds * 1e3:.4g}" for seconds in summary[:4]),
            *(f"{ratio:.2f}" for ratio in summary[4:9]),
            "" if goal is None else f">= {goal:g}",
            str(summary.rounds),
        )
    console.print(table)
    if frame.is_busy(frame.Summary(**result["variants"][benchmark.reference])):
        console.print("The machine was busy (wall above CPU time): wall ratios are wrong; read x CPU.")
