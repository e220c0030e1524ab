"""`minerva publish`."""

import dataclasses
import json
import pathlib
import shlex
from collections.abc import Iterator

from minerva_acme import runs
from minerva_acme.cli import commands, video
from minerva_acme.cli.output import Console
from minerva_acme.environments import task_settings
from minerva_acme.machine import reading
from minerva_acme.names import readable
from minerva_acme.runs import (
    checkpointing,
    hub,
    options,
    policies,
    provenance,
    run_folder,
    tasks,
    verification,
)

_CARD = "README.md"
_CARD_CHARACTERS = 10_000  # in which the header of a card of ours ends
_VIDEO = "replay.mp4"  # the name that the hub's pages look for
_PLACEHOLDER = "OWNER/NAME"
_LIBRARY = "minerva-acme"
_VIDEO_EPISODES = 5


def run(command: commands.Publish) -> int:
    """Writes the folder, shows it, and uploads it on request; returns the exit status.

    Raises:
        ValueError: There is no such run or checkpoint, its policy cannot be shared, or the hub refused.
    """
    try:
        to = hub.parse(f"{hub.PREFIX}{command.to}") if command.to else None
    except ValueError as error:
        raise ValueError(f"`--to` must be OWNER/NAME on the hub, got '{command.to}'.") from error
    if to:
        hub.check_installed()
    console = Console()
    checkpoint = checkpointing.find(command.directory, command.checkpoint)
    described = policies.description_of(command.directory, checkpoint)
    if described.environment.startswith(task_settings.RECORDED):
        raise ValueError(
            f"{command.directory} must have an environment to be published, for the score on its card, but "
            "learned from recorded episodes alone. Train with --env too, or share the weights as a file: "
            f"minerva export {shlex.quote(str(command.directory))}"
        )
    folder = command.output or command.directory / "hub"
    weights = folder / hub.WEIGHTS
    _check_output(folder)
    runs.export_policy(command.directory, weights, checkpoint=checkpoint, import_code=command.import_code)
    console.print(f"Playing {readable.count(command.episodes, 'episode')} for the score ...")
    score = verification.score(checkpoint, weights, command.episodes, import_code=command.import_code)
    found = policies.find(weights)
    (folder / run_folder.FILE).write_text(json.dumps(found.description.content(), indent=2) + "\n")
    files = [weights, folder / run_folder.FILE, folder / _CARD]
    if _record(command, checkpoint, folder / _VIDEO, console):
        files.append(folder / _VIDEO)
    sessions = provenance.read(command.directory)
    card = "\n".join(make_card(found, score, to.repository if to else _PLACEHOLDER, sessions))
    (folder / _CARD).write_text(card + "\n", encoding="utf-8")
    console.print(f"\n{card}\n\n{folder} holds:")
    for file in files:
        console.print(f"  {file.name}  {file.stat().st_size:,} bytes")
    if to is None:
        again = shlex.join(
            ["minerva", "publish", str(command.directory), "--to", _PLACEHOLDER, *_flags(command)]
        )
        console.print(f"Nothing was uploaded. To upload it: {again}")
        return 0
    title = f"{found.description.title} on {found.description.environment}"
    name = hub.upload(files, to, message=title, private=command.private)
    console.print(f"Uploaded. To play these weights: minerva eval {name}")
    return 0


def _check_output(folder: pathlib.Path) -> None:
    """Checks that a folder to write has no file of another kind that would be replaced.

    Raises:
        ValueError: It is the folder of a run, or has a README.md that is no card of a policy.
    """
    card, way_out = folder / _CARD, "Choose another --output."
    if (folder / run_folder.FILE).exists() and not (folder / hub.WEIGHTS).exists():
        raise ValueError(
            f"`output` must be a folder of its own, got the folder of a run, {folder}. {way_out}"
        )
    if card.exists():
        with reading.open_text(card, errors="replace") as file:
            is_ours = f"library_name: {json.dumps(_LIBRARY)}" in file.read(_CARD_CHARACTERS)
        if not is_ours:
            raise ValueError(f"`output` must not have a {_CARD} of yours, got {card}. {way_out}")


def _flags(command: commands.Publish) -> Iterator[str]:
    """Yields the flags with which the same folder is written again, and uploaded."""
    asked = {
        field.name: getattr(command, field.name)
        for field in dataclasses.fields(command)
        if field.name not in ("directory", "to") and getattr(command, field.name) != field.default
    }
    return tasks.make_flags(asked)


def _record(command: commands.Publish, checkpoint: pathlib.Path, out: pathlib.Path, console: Console) -> bool:
    """Records a video; returns whether there is one, and says why not."""
    out.unlink(missing_ok=True)
    if not command.video:
        return False
    wanted = commands.Video(
        directory=command.directory,
        checkpoint=(str(checkpoint),),
        episodes=_VIDEO_EPISODES,
        output=out,
        import_code=command.import_code,
    )
    try:
        video.run(wanted)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        console.print(f"No video: {error}")
        return False
    return True


def make_card(
    found: policies.Found, score: policies.Score, repository: str, sessions: list[dict[str, object]]
) -> Iterator[str]:
    """Yields the lines of the model card.

    Args:
        found: The policy.
        score: Its score.
        repository: The repository's name, OWNER/NAME.
        sessions: The entries of the run's provenance.
    """
    described, environment = found.description, found.description.environment
    is_return = score.metric == options.RETURN
    metric = "mean_reward" if is_return else score.metric
    mean, std = (f"{x:.2f}" if is_return else f"{x:.4g}" for x in (score.mean, score.std))
    reached = f"{mean} +/- {std}"
    metadata = {
        "library_name": _LIBRARY,
        "pipeline_tag": "reinforcement-learning",
        "tags": ["reinforcement-learning", "deep-reinforcement-learning", "minerva-acme", environment],
        "model-index": [
            {
                "name": described.title,
                "results": [
                    {
                        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
                        "dataset": {"name": environment, "type": environment},
                        "metrics": [{"type": metric, "value": reached, "name": metric, "verified": False}],
                    }
                ],
            }
        ],
    }
    yield "---"
    yield from (f"{key}: {json.dumps(value)}" for key, value in metadata.items())  # JSON is YAML too
    yield f"---\n\n# {described.title} on {environment}\n"
    yield (
        f"A policy that minerva-acme learned in {found.env_steps:,} {described.steps_name}, "
        f"seed {described.seed}.\n"
    )
    episodes = readable.count(score.num_episodes, "episode")
    yield (
        f"**Mean {'return' if is_return else score.metric} {reached}**: mean and standard deviation over "
        f"{episodes} from initial states that training has not seen (seed {score.seed}), without "
        "exploration.\n"
    )
    flags = " --import-code" if described.needs_code else ""
    yield f"## Play it\n\n```\nminerva eval hf:{repository} --episodes {score.num_episodes}{flags}\n```\n"
    yield "```python\nimport minerva_acme\n"
    code = ", import_code=True" if described.needs_code else ""
    yield f'policy = minerva_acme.load_policy("hf:{repository}"{code})\n```\n'
    if described.needs_code:
        yield "The run's own code, which its run.json names, must be installed. Both commands then run it.\n"
    yield "Only the safetensors file is read, which has no code. This needs minerva-acme's extra `hub`.\n"
    yield "## Train it again\n"
    if described.unknown:
        yield "This run was started from Python; run.json has its settings."
    else:
        words = ["minerva", "train", "--config", run_folder.FILE]
        words += ["--agent", described.agent] if described.config else []
        words += ["--env", environment] if ":" in environment else []
        yield f"With this repository's run.json:\n\n```\n{shlex.join(words)}\n```"
    for session in sessions[-1:]:
        yield f"\nTrained with minerva-acme {session['version']} on {session['machine']}."
