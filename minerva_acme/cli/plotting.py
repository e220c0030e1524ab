"""`minerva plot`."""

from minerva_acme import plotting
from minerva_acme.cli import commands, extras, report
from minerva_acme.cli.output import Console
from minerva_acme.plotting import run_figures


def run(command: commands.Plot) -> int:
    """Draws the learning curves of runs; returns the exit status.

    Raises:
        ValueError: There are no such runs, they have no such metric, or they cannot be plotted as requested.
    """
    with extras.needed("plot"):
        from minerva_acme.plotting import figure
    console = Console(stderr=True)
    content = run_figures.read_runs(
        command.directories,
        metric=command.metric,
        x=command.x,
        group=command.group,
        published=command.published,
        aggregate=command.aggregate,
        ranges=dict(map(report.read_range, command.range)),
        note=console.print,
    )
    files = figure.save(
        figure.draw(content.panels, y_label=content.y_label, x_label=content.x_label), command.output
    )
    console.print(f"Wrote {', '.join(map(str, files))}. For the caption: {plotting.make_caption(*content)}")
    return 0
