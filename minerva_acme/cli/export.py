"""`minerva export`."""

from minerva_acme import runs
from minerva_acme.cli import choices, commands
from minerva_acme.cli.console import Console
from minerva_acme.runs import checkpointing, verification

_FORMATS = ("safetensors", "pt2")


def run(command: commands.Export) -> int:
    """Writes a run's policy to one file; returns the exit status.

    Raises:
        ValueError: There is no such run or checkpoint, or its policy cannot be written in this format.
    """
    suffix = command.output.suffix.removeprefix(".") if command.output else ""
    format_ = command.format or (choices.choose("format", suffix, _FORMATS) if suffix else _FORMATS[0])
    if command.episodes and format_ != "safetensors":
        raise ValueError(f"`episodes` must be 0 if `format` is {format_}, which cannot store a score.")
    checkpoint = checkpointing.find(command.directory, command.checkpoint)
    output = command.output or command.directory / f"policy-{checkpoint.name}.{format_}"
    runs.export_policy(
        command.directory,
        output,
        format=format_,  # type: ignore[arg-type]
        checkpoint=command.checkpoint,
        actions=command.actions,
        half=command.half,
        import_code=command.import_code,
    )
    if format_ == "pt2":
        use = f"torch.export.load('{output}').module()(observations)"
    else:
        use = f"minerva_acme.load_policy('{output}')(observation).action"
    console = Console()
    if command.episodes:
        score = verification.score(checkpoint, output, command.episodes, import_code=command.import_code)
        console.print(
            f"Score {score.mean:.2f} +- {score.std:.2f} over {score.num_episodes} episodes from unseen "
            f"initial states, {score.rounding:.2f} away from the score of the run's own weights"
        )
    console.print(f"Wrote {output} from checkpoint {checkpoint.name}. To act with it: {use}")
    return 0
