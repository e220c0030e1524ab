"""`minerva report` and `minerva plot`."""

import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.table import Column
from rich.table import Table as RichTable

from minerva_acme import plotting, results
from minerva_acme.cli import choices, commands
from minerva_acme.cli.output import Console
from minerva_acme.machine import reading
from minerva_acme.plotting import report_page, run_figures
from minerva_acme.results import names
from minerva_acme.runs import run_folder, run_results

if TYPE_CHECKING:
    from minerva_acme.plotting import report_figures

_NOT_PRINTED = ("What produced them", "Published results")  # too wide for a terminal; the page shows them
_CELL_WIDTH = 24  # longer cells may be folded
_GAP = 2  # between columns: a space and the box's empty line


def run(command: commands.Report) -> int:
    """Compares experiments, prints tables and writes a page; returns the exit status.

    Raises:
        ValueError: There are no such results, or they cannot be compared as requested.
    """
    with choices.needed("report", "plot"):
        from minerva_acme.plotting import report_figures
    console = Console()
    experiments = _select(read_experiments(command.results), command.env)
    envs = [env for one in experiments for env, _ in one.trainings]
    against = read_against(command.against)
    is_return = command.metric == results.RETURN
    if command.against is None and is_return:
        usual = run_figures.compared_with(one.exp_name.partition("_")[0] for one in experiments)
        published = results.load_published()
        against = [name for name in usual if published[name].points.keys() & envs]
    report = plotting.make_report(
        experiments,
        against=against,
        ranges=read_ranges(command.range, envs),
        step=command.step,
        min_seeds=command.min_seeds,
        metric=command.metric,
    )
    for note in report.notes:
        console.print(note)
    for table in report.tables:
        if table.title not in _NOT_PRINTED:
            _print(table, console)
    labels = [one.exp_name for one in experiments]
    command.output.mkdir(parents=True, exist_ok=True)
    pictures = _save(report_figures.draw(report, labels, command.metric), command.output)
    _write(command.output, ", ".join(labels), [*_sections(report, pictures)], console)
    _write_rows(command.output / "rows", experiments, console)
    return 0


def plot(command: commands.Plot) -> int:
    """Draws the learning curves of runs; returns the exit status.

    Raises:
        ValueError: There are no such runs, they have no such metric, or they cannot be plotted as requested.
    """
    with choices.needed("plot"):
        from minerva_acme.plotting import figure
    console = Console(stderr=True)
    content = run_figures.read_runs(
        command.directories,
        metric=command.metric,
        x=command.x,
        group=command.group,
        published=command.published,
        aggregate=command.aggregate,
        ranges=dict(map(read_range, command.range)),
        note=console.print,
    )
    files = figure.save(
        figure.draw(content.panels, y_label=content.y_label, x_label=content.x_label), command.output
    )
    console.print(f"Wrote {', '.join(map(str, files))}. For the caption: {plotting.make_caption(*content)}")
    return 0


def _save(drawn: "Iterable[report_figures.Drawn]", out: pathlib.Path) -> dict[str, list[report_page.Picture]]:
    """Saves figures; returns the pictures of each name for the page."""
    from minerva_acme.plotting import figure

    pictures: dict[str, list[report_page.Picture]] = {}
    for one in drawn:
        same = pictures.setdefault(one.name, [])
        file = f"{one.name}_{len(same) + 1}" if same else one.name
        svg, pdf = (figure.save(one.figure, out / f"{file}{suffix}")[0] for suffix in (".svg", ".pdf"))
        files = {"SVG": svg.name, "PDF": pdf.name}
        same.append(report_page.Picture(one.title, one.caption, svg.read_text(encoding="utf-8"), files))
    return pictures


def _write(out: pathlib.Path, title: str, sections: Sequence[report_page.Section], console: Console) -> None:
    (out / "index.html").write_text(report_page.make_page(title, sections), encoding="utf-8")
    (out / "tables.md").write_text(report_page.make_markdown(title, sections), encoding="utf-8")
    console.print(
        f"Wrote {out}/index.html, and in the same folder its figures as SVG and PDF, tables.md and rows/."
    )


def _write_rows(rows: pathlib.Path, experiments: Iterable[results.Experiment], console: Console) -> None:
    written = {results.write(rows, one, names.to_file_name(one.exp_name))[0] for one in experiments}
    if others := sorted(path.name for path in {*rows.glob("*.csv")} - written):
        console.print(
            f"{rows} also has rows of an earlier report: {', '.join(others)}. Remove them before you make "
            "this report again from the folder."
        )


def _sections(
    report: plotting.Report, pictures: Mapping[str, Sequence[report_page.Picture]]
) -> Iterator[report_page.Section]:
    """Yields the results, then what is needed to judge them, then what produced them."""
    for table in report.tables:
        if table.figure:
            yield report_page.Section(table.title, pictures.get(table.figure, ()), table=table)
        if table.figure == "scores" and (curves := pictures.get("sample_efficiency")):
            yield report_page.Section(curves[0].title, curves)
    if report.notes:
        yield report_page.Section("Notes", texts=report.notes)
    for table in report.tables:
        if not table.figure:
            yield report_page.Section(table.title, table=table)


def read_experiments(sources: Sequence[str]) -> list[results.Experiment]:
    """Reads experiments from folders of runs, files of rows, folders of such files, or the library by name.

    Raises:
        ValueError: There are no experiments, or two sources have the same run.
    """
    if not sources:
        raise ValueError(
            "At least one result must be given, got none. Give runs' folders, files of rows, or experiments "
            f"of the library: {', '.join(results.load())}."
        )
    found: dict[str, results.Experiment] = {}
    for source in sources:
        for one in _read(source):
            old = found.get(one.exp_name)
            if old is not None and (twice := sorted({*old.trainings} & {*one.trainings})):
                env_name, seed = twice[0]
                raise ValueError(
                    f"{one.exp_name} on {env_name} with seed {seed} is given twice, the second time in "
                    f"'{source}'. Leave one of them out."
                )
            found[one.exp_name] = one if old is None else results.merge(old, one)
    return list(found.values())


def _select(
    experiments: Sequence[results.Experiment], environments: Sequence[str]
) -> list[results.Experiment]:
    """Returns the experiments with the runs in these environments only; with all runs if none is given."""
    chosen = [name.removeprefix("gymnasium/") for name in environments]
    known = {env_name for one in experiments for env_name, _ in one.trainings}
    if unknown := [name for name in chosen if name not in known]:
        raise ValueError(f"`env` must be among {', '.join(sorted(known))}, got {', '.join(unknown)}.")
    return [results.select(one, chosen) if chosen else one for one in experiments]


def _read(source: str) -> list[results.Experiment]:
    path = pathlib.Path(source)
    if path.is_dir():
        files = [file for file in sorted(path.glob("*.csv")) if _has_rows(file)]
        experiments = [one for file in files for one in results.read(file)]
        has_runs = next(path.rglob(run_folder.FILE), None) is not None
        # If there is neither, this raises the error.
        runs = run_results.find_runs([path]) if has_runs or not files else []
        return [*experiments, *run_results.collect(runs)]
    if path.exists():
        return results.read(path)
    if source in results.load():
        return [results.load()[source]]
    hint = choices.near(source, results.load(), at_most=3) or "For all names: minerva report"
    raise ValueError(
        f"There is no file or folder {path.absolute()}, and no experiment '{source}' in the library. {hint}"
    )


def _has_rows(path: pathlib.Path) -> bool:
    with reading.open_text(path, errors="replace") as lines:
        return sorted(next(lines, "").strip().split(",")) == sorted(results.Row._fields)


def read_against(names: Iterable[str] | None) -> list[str]:
    """Returns the published results that are named, where `none` is a name for none."""
    return [name for name in names or () if name != "none"]


def read_ranges(texts: Iterable[str], environments: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Returns the ranges of environments; if there is one environment, its range may be without its name.

    Raises:
        ValueError: A text is no range, or has no name although there are several environments.
    """
    ranges, known = dict(map(read_range, texts)), {*environments}
    if "" in ranges:
        if len(known) > 1:
            raise ValueError(
                f"`range` must name its environment, one of {', '.join(sorted(known))}, because there are "
                "several: ENVIRONMENT=LOWEST:HIGHEST."
            )
        ranges |= {env: ranges[""] for env in known}
    return ranges


def read_range(text: str) -> tuple[str, tuple[float, float]]:
    """Reads an environment, or "" for none, and the range of its returns, such as CartPole-v1=0:500."""
    env_name, _, limits = text.rpartition("=")
    low, colon, high = limits.partition(":")
    try:
        if not colon:
            raise ValueError
        return env_name.removeprefix("gymnasium/"), (float(low), float(high))
    except ValueError:
        raise ValueError(
            f"`range` must be ENVIRONMENT=LOWEST:HIGHEST, such as CartPole-v1=0:500, got '{text}'."
        ) from None


def _print(table: plotting.Table, console: Console) -> None:
    console.print(f"\n{table.title}", style="bold")
    columns = [*zip(table.columns, *table.rows, strict=True)]
    for number, block in enumerate(_blocks(columns, console.width)):
        # Rich shares out what is missing without regard to the shortest lines: it would cut columns off.
        fits = sum(_GAP + max(map(len, column)) for column in block) <= _GAP + console.width
        shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for index, column in enumerate(block):
            width = None if fits else _width(column)
            shown.columns.append(
                Column(column[0], justify="right" if index else "left", width=width, overflow="fold")
            )
        for row in zip(*(column[1:] for column in block), strict=True):
            shown.add_row(*row)
        if number:
            console.print()
        console.print(shown, soft_wrap=False)
    console.print(table.note, soft_wrap=False, style="dim")


def _blocks(columns: Sequence[Sequence[str]], width: int) -> Iterator[list[Sequence[str]]]:
    """Splits a table that is wider than the console into blocks; each has the first column."""
    first, *others = columns
    block, used = [first], _width(first)
    for column in others:
        needed = _GAP + _width(column)
        if used + needed > width and len(block) > 1:
            yield block
            block, used = [first], _width(first)
        block.append(column)
        used += needed
    yield block


def _width(column: Sequence[str]) -> int:
    """Returns the width that a column needs: heads break between words, and long cells at any letter."""
    name, *cells = column
    longest = max(map(len, name.split()), default=0)
    return max(longest, min(_CELL_WIDTH, max(map(len, cells), default=0)))
