"""`minerva export`."""

from minerva_acme import runs
from minerva_acme.cli import choices, commands
from minerva_acme.cli.output import Console
from minerva_acme.names import readable
from minerva_acme.runs import checkpointing, policies, verification

_FORMATS = ("safetensors", "pt2", "onnx")
_PROGRAM_EPISODES = 2  # of each environment, so that all start one in the middle


def run(command: commands.Export) -> int:
    """Writes a run's policy to one file; returns the exit status.

    Raises:
        ValueError: There is no such run or checkpoint, or its policy cannot be written in this format.
    """
    suffix = command.output.suffix.removeprefix(".") if command.output else ""
    format_ = command.format or (choices.choose("format", suffix, _FORMATS) if suffix else _FORMATS[0])
    if format_ == "onnx":
        _check_onnx()
    is_program = format_ != "safetensors"
    episodes = _PROGRAM_EPISODES * is_program if command.episodes is None else command.episodes
    if not command.directory.is_dir():
        raise ValueError(
            f"`directory` must be the folder of a run, got {command.directory}, which is "
            f"{'a file' if command.directory.exists() else 'no folder'}. Stored weights, and files that this "
            "command has written, are exported already: play them with `minerva eval`."
        )
    checkpoint = checkpointing.find(command.directory, command.checkpoint)
    description = policies.description_of(command.directory, checkpoint)
    output = command.output or command.directory / f"policy-{checkpoint.name}.{format_}"
    comparison = runs.export_policy(
        command.directory,
        output,
        format=format_,  # type: ignore[arg-type]
        checkpoint=command.checkpoint,
        actions=command.actions,
        half=command.half,
        import_code=command.import_code,
        compare_episodes=episodes * is_program,
    )
    has_memory = description.hyperparameters.get("memory", "none") != "none"
    inputs = "observations, state, start" if has_memory else "observations"
    if format_ == "pt2":
        use = f"torch.export.load('{output}').module()({inputs})"
    elif format_ == "onnx":
        use = f"onnxruntime.InferenceSession('{output}').run(None, {{{inputs}}})"
    else:
        code = ", import_code=True" if description.needs_code else ""
        use = f"minerva_acme.load_policy('{output}'{code})(observation).action"
    console = Console()
    if comparison:
        episodes_played = readable.count(comparison.num_episodes, "episode")
        console.print(
            f"Largest difference from the policy: {comparison.largest:.1e} of the action range, over "
            f"{episodes_played} ({comparison.num_steps:,} steps), in batches of 1 and 7"
        )
    elif episodes:
        score = verification.score(checkpoint, output, episodes, import_code=command.import_code)
        console.print(
            f"Score ({score.metric}) {score.mean:.2f} ± {score.std:.2f} over "
            f"{readable.count(score.num_episodes, 'episode')} "
            f"from unseen initial states, {score.rounding:.2f} away from the score of the run's own weights"
        )
    console.print(f"Wrote {output} from checkpoint {checkpoint.name}. To act with it: {use}")
    return 0


def _check_onnx() -> None:
    """Checks that the packages of the extra `onnx` are installed.

    Raises:
        ValueError: One is missing.
    """
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise ValueError(
            f"`--format onnx` needs '{error.name}', which is not installed. It does not go with TensorFlow "
            "2.15, which Reverb needs, so use an environment with Python 3.12 or newer, which also exports "
            "runs that were trained with Reverb: pip install 'minerva-acme[onnx]'"
        ) from error
