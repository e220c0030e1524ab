"""The policy that a run has learned: loaded from its folder or from one file, and written to one."""

import json
import os
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import dm_env
import numpy as np
import torch
import tree

from minerva_acme import builders, results, specs, types
from minerva_acme.environments import task_actions
from minerva_acme.runs import checkpointing, loaded_policy, run_folder

_METADATA = "minerva_acme"
_SCORE = "score"


class Score(NamedTuple):
    """What weights in a file have reached, without exploration."""

    mean: float  # return
    std: float  # of the return over the episodes
    num_episodes: int
    seed: int  # of the environment
    rounding: float  # by how much the mean return of the run's own weights differed, in the same episodes


class Found(NamedTuple):
    """A learned policy: a run's, or of one file."""

    path: pathlib.Path  # of the checkpoint or of the file, for `load_policy`
    description: run_folder.RunDescription
    env_steps: int  # of training
    score: Score | None  # None: nobody wrote it down


def find(path: str | os.PathLike[str], checkpoint: str | int | os.PathLike[str] = "latest") -> Found:
    """Finds a policy that was learned.

    Args:
        path: the folder of a run or of a checkpoint, a file in safetensors that `export_policy` wrote, or the
            name of weights that are installed with the library, such as ppo_default:CartPole-v1.
        checkpoint: which one of a run, as for `load_policy`.

    Raises:
        ValueError: there is none.
    """
    path = _locate(path)
    if path.is_file():
        described, _, metadata = _read_safetensors(path)
        step = metadata.get("checkpoint", "").partition("-")[0]
        found = metadata.get(_SCORE)
        return Found(path, described, int(step or 0), Score(**json.loads(found)) if found else None)
    described = _description(path, path) if _is_checkpoint_folder(path) else run_folder.read(path)
    folder = checkpointing.find(path, checkpoint)
    return Found(folder, described, checkpointing.env_steps(folder), None)


def load_policy(
    path: str | os.PathLike[str],
    builder: builders.AgentBuilder[Any] | None = None,
    environment: dm_env.Environment | specs.EnvironmentSpec | None = None,
    *,
    checkpoint: str | int | os.PathLike[str] = "latest",
    seed: int = 0,
    explore: bool = False,
    import_code: bool = False,
    actions: Literal["agent", "task"] = "agent",
) -> builders.AgentPolicy:
    """Loads the policy that a run has learned: `policy(timestep.observation).action`.

    Its actions are the agent's: continuous ones are within [-1, 1] behind the wrappers of
    `environments.make_training_environment`, whatever the bounds of the task. With `actions="task"` they are
    those of the bare environment, in its own bounds, dtype and structure.

    Observations are those of training. Their structure, shape, dtype and finiteness are checked, which
    training's own policy does not do; `loaded_policy.LoadedPolicy` says what is converted.

    Args:
        path: the folder of a run or of a checkpoint, a file in safetensors that `export_policy` wrote, or the
            name of weights that are installed with the library, such as ppo_default:CartPole-v1.
        builder: of the trained agent, with its config; None: what is written beside the weights says it.
        environment: wrapped as in training, or its spec; None: likewise.
        checkpoint: which one of a run: "latest", "best", its number of environment steps or its folder.
        seed: of the policy's randomness, if any.
        explore: whether to explore as in training.
        import_code: whether a builder that is not this library's may be imported from where the run says it
            is. That runs its code.
        actions: "agent": as the agent chose them in training. "task": as the environment takes them without
            the wrappers of training. Their spec is read from `environment` if one is given, otherwise from
            what is stored with the weights; only for runs of older versions the environment is made for it.

    Raises:
        ValueError: there is no checkpoint, builder or spec, the agent cannot act in this environment, the
            checkpoint is of another agent, config or environment, or the task's actions are not known.
    """
    if actions not in ("agent", "task"):
        raise ValueError(f"`actions` must be 'agent' or 'task', got {actions!r}.")
    path = _locate(path)
    if path.is_file():
        described, tensors, _ = _read_safetensors(path)
        found = path
    else:
        described, tensors = None, {}
        found = checkpointing.find(path, checkpoint)
    if builder is None or environment is None:
        described = described or _description(path, found)
        builder = builder or described.make_builder(import_code=import_code)
    task = None
    if environment is None:
        assert described is not None
        spec = described.make_specs(import_code=import_code)
    elif isinstance(environment, specs.EnvironmentSpec):
        spec = environment
    else:
        spec, task = specs.make_environment_spec(environment), task_actions.find(environment)
        if task is None and actions == "task":
            raise ValueError(task_actions.UNKNOWN)
    builder.check_spec(spec)
    to_task = None
    if actions == "task":
        if task is None:
            task = _stored_task(described or _description(path, found), import_code)
        to_task = task_actions.TaskActions(spec.actions, task)
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):  # which layers of torch's own draw from
        policy = builder.make_policy(
            builder.make_networks(spec, generator), spec, generator, evaluation=not explore
        )
    with checkpointing.explain_misfit(found):
        if path.is_file():
            values = [_below(tensors, name) for name in builder.policy_variables]
        else:
            state = checkpointing.load_state(found)["policy_variables"]
            values = [tree.map_structure(lambda tensor: tensor.numpy(), value) for value in state]
        policy.set_variables(values)
    return loaded_policy.LoadedPolicy(policy, spec.observations, to_task)


def _stored_task(described: run_folder.RunDescription, import_code: bool) -> types.NestedSpec:
    """Returns the spec of the task's actions by what is stored with the weights."""
    try:
        return described.make_task_actions(import_code=import_code)
    except (ImportError, ValueError) as error:
        raise ValueError(
            "The task's actions must be known for `actions='task'`, but what is stored with these weights "
            f"does not say them, and the environment cannot be made to ask it: {error} Give it, wrapped as "
            "in training: load_policy(..., environment=environment, actions='task')."
        ) from error


def export_policy(
    path: str | os.PathLike[str],
    file: str | os.PathLike[str],
    *,
    format: Literal["safetensors", "pt2"] = "safetensors",
    checkpoint: str | int | os.PathLike[str] = "latest",
    half: bool = False,
    import_code: bool = False,
    actions: Literal["agent", "task"] = "agent",
) -> None:
    """Writes the policy that a run has learned to one file.

    Args:
        path: the folder of a run or of a checkpoint.
        file: what to write; it is replaced as a whole.
        format: `safetensors`: the weights that actors pull, with what run.json says, for `load_policy`.
            Reading them runs no code. `pt2`: a program of `torch.export` that maps observations [B, ...], of
            any B >= 1, to the actions without exploration; torch alone loads and runs it.
        checkpoint: which one of a run: "latest", "best", its number of environment steps or its folder.
        half: whether to round float32 weights to float16, in half the size. A tensor with numbers beyond
            what float16 holds stays float32. `load_policy` computes in float32 all the same.
        import_code: as for `load_policy`.
        actions: The actions of a program (pt2), as for `load_policy`: by default within [-1, 1] where they
            are continuous, with "task" in the task's own bounds. For weights it is chosen on loading.

    Raises:
        ValueError: as `load_policy`; or the policy's weights are not named tensors (safetensors), or it
            makes no module (pt2).
        OSError: the file cannot be written.
    """
    if half and format != "safetensors":
        raise ValueError(f"`half` must be False where `format` is {format}: it computes with its weights.")
    if actions != "agent" and format != "pt2":
        raise ValueError(
            f"`actions` must be 'agent' where `format` is {format}, got {actions!r}: `load_policy` takes it, "
            "which reads such files."
        )
    path, file = pathlib.Path(path), pathlib.Path(file)
    found = checkpointing.find(path, checkpoint)
    described = _description(path, found)
    if format == "pt2":
        program = _export_program(
            load_policy(path, checkpoint=found, import_code=import_code, actions=actions),
            described.make_specs(import_code=import_code),
        )
        _write_whole(file, lambda new: torch.export.save(program, new))
        return
    from safetensors import numpy as safetensors

    builder = described.make_builder(import_code=import_code)
    # Its form is checked before anybody is given the file.
    variables = checkpointing.load_state(found)["policy_variables"]
    tensors: dict[str, np.ndarray] = {}
    for name, value in zip(builder.policy_variables, variables, strict=True):
        if not isinstance(value, dict) or not all(isinstance(part, torch.Tensor) for part in value.values()):
            raise ValueError(
                f"`{name}` must be a dict of tensors to be exported, got {type(value).__name__}."
            )
        tensors |= {f"{name}.{part}": np.asarray(tensor, order="C") for part, tensor in value.items()}
    metadata = {_METADATA: json.dumps(described.content()), "checkpoint": found.name, "format": "np"}
    if half:
        tensors = {name: _halved(tensor) for name, tensor in tensors.items()}
        metadata["rounded"] = "float16"
    _write_whole(file, lambda new: safetensors.save_file(tensors, new, metadata))


def note_score(file: pathlib.Path, score: Score) -> None:
    """Writes a score into a file of weights, which is replaced as a whole."""
    import safetensors.numpy

    _, _, metadata = _read_safetensors(file)
    tensors = safetensors.numpy.load_file(file)  # as they are written
    metadata = {**metadata, _SCORE: json.dumps(score._asdict())}
    _write_whole(file, lambda new: safetensors.numpy.save_file(tensors, new, metadata))


def _halved(tensor: np.ndarray) -> np.ndarray:
    """Rounds float32 to float16 where that can hold it."""
    if tensor.dtype == np.float32 and np.abs(tensor).max(initial=0.0) <= np.finfo(np.float16).max:
        return tensor.astype(np.float16)
    return tensor


def _export_program(
    policy: builders.AgentPolicy, spec: specs.EnvironmentSpec
) -> torch.export.ExportedProgram:
    module = policy.as_module()
    # Two rows: of one, torch would take the batch to be always 1.
    example = tree.map_structure(
        lambda leaf: torch.from_numpy(np.zeros((2, *leaf.shape), leaf.dtype)), spec.observations
    )
    batch = torch.export.Dim("batch", min=1)
    sizes = tree.map_structure(lambda leaf: {0: batch}, spec.observations)
    return torch.export.export(module, (example,), dynamic_shapes=(sizes,))


def _description(path: pathlib.Path, checkpoint: pathlib.Path) -> run_folder.RunDescription:
    """Returns what the folder of a run says, or of a checkpoint in <run>/checkpoints."""
    return run_folder.read(checkpoint.parent.parent if checkpoint == path else path)


def _locate(path: str | os.PathLike[str]) -> pathlib.Path:
    """Returns a path, or where the weights of this name are; what is on the disk comes first.

    Raises:
        ValueError: it looks like such a name and is none.
    """
    known = results.list_weights()
    if pathlib.Path(path).exists() or ":" not in os.fspath(path):
        return pathlib.Path(path)
    if (name := os.fspath(path)) not in known:
        raise ValueError(
            f"There are no weights '{name}' in the library; it has {', '.join(known) or 'none'}. Give one of "
            "them, the folder of a run, or a file that `minerva export` wrote."
        )
    return known[name]


def _is_checkpoint_folder(path: pathlib.Path) -> bool:
    return not (path / run_folder.FILE).exists() and (path.parent.parent / run_folder.FILE).exists()


def _read_safetensors(
    path: pathlib.Path,
) -> tuple[run_folder.RunDescription, dict[str, np.ndarray], dict[str, str]]:
    """Returns what the file says of the run, the weights in the precision of training, and all metadata."""
    import safetensors

    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, TypeError) as error:
        raise ValueError(
            f"{path} must be a whole file in safetensors, as `minerva export` writes it, got none: {error}."
        ) from error
    if _METADATA not in metadata:
        raise ValueError(
            f"{path} must say which agent its weights are of, under '{_METADATA}' of its metadata, but does "
            "not. `minerva export RUN` writes such files."
        )
    if "rounded" in metadata:
        tensors = {
            name: tensor.astype(np.float32) if tensor.dtype == np.float16 else tensor
            for name, tensor in tensors.items()
        }
    return run_folder.parse(metadata[_METADATA], path), tensors, metadata


def _below(tensors: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    prefix = f"{name}."
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def _write_whole(file: pathlib.Path, write: Callable[[str], Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".export-") as folder:
        new = pathlib.Path(folder, file.name)
        write(str(new))
        os.replace(new, file)
