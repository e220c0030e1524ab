"""`minerva verify`."""

import pathlib
from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Column, Table

from minerva_acme import results
from minerva_acme.cli import choices, commands
from minerva_acme.cli.output import Console
from minerva_acme.runs import options, verification


def run(command: commands.Verify) -> int:
    """Plays weights and compares their scores with the stored ones; returns the exit status.

    Raises:
        ValueError: There are no such weights, or they have no score.
    """
    console = Console()
    numbers = (Column(name, justify="right") for name in ("stored", "played", "tolerance"))
    table = Table(
        Column("weights", overflow="fold"), *numbers, "verdict", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    problems, num_good = [], 0
    chosen = choose(command.rows, results.list_weights())
    for name, path in chosen.items():
        with console.status(f"Playing {name} ..."):
            try:
                verdict = verification.verify(
                    path,
                    num_episodes=command.episodes,
                    seed=command.seed,
                    import_code=command.import_code,
                )
            except ImportError as error:
                problems.append(f"{name} could not be played: {error}")
                table.add_row(name, *["-"] * 3, "not played")
                continue
        num_good += verdict.is_same
        stored = verdict.stored
        is_return = stored.metric == options.RETURN
        found = (stored.mean, stored.std, verdict.mean, verdict.tolerance)
        mean, std, played, tolerance = (f"{x:.1f}" if is_return else f"{x:.4g}" for x in found)
        table.add_row(
            name if is_return else f"{name}, {stored.metric}",
            f"{mean} ± {std}",
            played,
            tolerance,
            "same" if verdict.is_same else "DIFFERS",
        )
    console.print(table, soft_wrap=False)
    console.print(
        "Mean return, or the metric named, without exploration, with the standard deviation over episodes. "
        f"The tolerance is the sum of {verification.STANDARD_ERRORS:g} standard errors of the difference, "
        "the change caused by rounding the weights to float16, and "
        f"{verification.ARITHMETIC:.1%} of the score for other CPUs' "
        "rounding.",
        soft_wrap=False,
    )
    for problem in problems:
        console.print(problem)
    return 0 if num_good == len(chosen) else 1


def choose(rows: Sequence[str], known: Mapping[str, pathlib.Path]) -> dict[str, pathlib.Path]:
    """Returns the weights of the given experiments and environments, and those named directly.

    Args:
        rows: Experiments, environments, names of both, and files; if empty, all known weights.
        known: The files of the known weights, by name.

    Raises:
        ValueError: There are no weights with this name, or of this experiment in this environment.
    """
    parts = {name: name.partition(":")[::2] for name in known}
    experiments, environments = ({pair[place] for pair in parts.values()} for place in (0, 1))
    named = {
        row: known.get(row, pathlib.Path(row)) for row in rows if row in known or pathlib.Path(row).is_file()
    }
    words = [row.removeprefix("gymnasium/") for row in rows if row not in named]
    for word in words:
        choices.choose(
            "stored experiment, environment or file", word, [*sorted(experiments | environments), *known]
        )
    asked = [{word for word in words if word in found} for found in (experiments, environments)]
    chosen = {
        name: known[name]
        for name, pair in parts.items()
        if (words or not rows) and all(not of or part in of for part, of in zip(pair, asked, strict=True))
    }
    if not chosen and not named:
        raise ValueError(
            f"There are no weights of {' in '.join(words) or 'any experiment'}; the stored ones are "
            f"{', '.join(known) or 'none'}."
        )
    return {**named, **chosen}
