"""Learned policies: loaded from a run's folder or from one file, and exported to one."""

import contextlib
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import dm_env
import numpy as np
import torch
import tree

from minerva_acme import builders, counting, networks, results, specs, types
from minerva_acme.environments import task_actions, task_observations
from minerva_acme.machine import reading
from minerva_acme.runs import checkpointing, hub, loaded_policy, options, programs, run_folder

_METADATA = "minerva_acme"
_SCORE = "score"
Written = TypeVar("Written")


class Score(NamedTuple):
    """The score that weights in a file have reached, without exploration."""

    mean: float
    std: float  # over the episodes
    num_episodes: int
    seed: int  # the environment's seed
    rounding: float  # the difference from the mean of the run's own weights in the same episodes
    metric: str = options.RETURN  # of which these are the mean and the standard deviation


class Found(NamedTuple):
    """A learned policy, from a run or from one file."""

    path: pathlib.Path  # the checkpoint or the file, for `load_policy`
    description: run_folder.RunDescription
    env_steps: int  # the environment steps of training
    score: Score | None  # None if the file has none


def find(path: str | os.PathLike[str], checkpoint: str | int | os.PathLike[str] = "latest") -> Found:
    """Finds a learned policy.

    Args:
        path: The folder of a run or of a checkpoint, a safetensors file that `export_policy` wrote, the name
            of weights that are installed with the library, such as ppo_default:CartPole-v1, or of weights on
            the Hugging Face Hub, hf:OWNER/NAME@REVISION (extra `hub`), see `hub.download`.
        checkpoint: The checkpoint of a run, as for `load_policy`.

    Raises:
        ValueError: There is no such policy.
    """
    path = _locate(path)
    if path.is_file():
        described, _, metadata = _read_safetensors(path)
        return Found(path, described, _env_steps(metadata), _score(metadata))
    described = run_folder.read(run_of(path))
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

    By default, its actions are the agent's: with the wrappers of `environments.make_training_environment`,
    continuous ones are within [-1, 1], whatever the bounds of the task. With `actions="task"` they are the
    actions of the bare environment, in its own bounds, dtype and structure.

    Observations must be as in training, or as the bare environment gives them, such as a dict that
    `make_training_environment` concatenated. Their structure, shape, dtype and finiteness are checked, which
    the policy in training does not do; see `loaded_policy.LoadedPolicy` for the conversions. What only the
    critic saw (`critic_observations`) may be missing in them, and in `environment`.

    Args:
        path: The folder of a run or of a checkpoint, a safetensors file that `export_policy` wrote, the name
            of weights that are installed with the library, such as ppo_default:CartPole-v1, or of weights on
            the Hugging Face Hub, hf:OWNER/NAME@REVISION (extra `hub`), see `hub.download`.
        builder: The builder of the trained agent, with its config, or None to make it from the description
            that is stored with the weights.
        environment: The environment, wrapped as in training, or its spec; None to read the spec from that
            description.
        checkpoint: The checkpoint of a run: "latest", "best", its number of environment steps or its folder.
        seed: The seed of the policy's randomness, if it has any.
        explore: Whether to explore as in training, with schedules at the checkpoint's environment step, or at
            its learner step if the run learned from recorded episodes alone.
        import_code: Whether a builder that is not part of this library may be imported from the module that
            the run names. Importing runs its code.
        actions: "agent" for the actions as the agent chose them in training, "task" for actions that the
            environment accepts without the wrappers of training. The task's spec is read from `environment`
            if that is an environment, otherwise from the description; only for runs of older versions is
            the environment made to read it.

    Raises:
        ValueError: There is no checkpoint, builder or spec, the agent cannot act in this environment, the
            checkpoint belongs to another agent, config or environment, the environment's actions have other
            bounds than in training, or the task's actions are unknown.
    """
    if actions not in ("agent", "task"):
        raise ValueError(f"`actions` must be 'agent' or 'task', got {actions!r}.")
    path = _locate(path)
    if path.is_file():
        described, tensors, metadata = _read_safetensors(path)
        found, env_steps = path, _env_steps(metadata)
    else:
        described, tensors = None, {}
        found = checkpointing.find(path, checkpoint)
        env_steps = checkpointing.env_steps(found)
    if builder is None or environment is None:
        described = described or description_of(path, found)
        builder = builder or described.make_builder(import_code=import_code)
    task = given = None
    if environment is None:
        assert described is not None
        spec, given = described.make_specs(import_code=import_code), described.make_task_observations()
    elif isinstance(environment, specs.EnvironmentSpec):
        spec = environment
    else:
        given = task_observations.find(environment)
        spec, task = specs.make_environment_spec(environment), task_actions.find(environment)
        if task is None and actions == "task":
            raise ValueError(task_actions.UNKNOWN)
    hidden = getattr(getattr(builder, "config", None), "critic_observations", ())
    if _lacks(spec.observations, hidden):
        described = described or description_of(path, found)
        spec = _with_hidden(spec, described.make_specs(import_code=import_code), hidden)
    builder.check_spec(spec)
    to_task = None
    if actions == "task":
        if task is None:
            task = _stored_task(described or description_of(path, found), import_code)
        to_task = task_actions.TaskActions(spec.actions, task)
    generator = torch.Generator().manual_seed(seed)
    counter = counting.Counter()
    counter.increment(actor_steps=env_steps)
    with torch.random.fork_rng(devices=[]):  # torch's own layers draw from the global generator
        made = builder.make_networks(spec, generator)
        policy = builder.make_policy(made, spec, generator, evaluation=not explore, counter=counter)
    with checkpointing.explain_misfit(found):
        if path.is_file():
            values = [_below(tensors, name) for name in builder.policy_variables]
        else:
            state = checkpointing.load_state(found)["policy_variables"]
            values = [tree.map_structure(lambda tensor: tensor.numpy(), value) for value in state]
        try:
            policy.set_variables(values)
        except ValueError as error:  # it says what differs, but not where
            raise ValueError(f"{found} must belong to this agent, config and environment: {error}") from error
    check_actions(path, spec, described)
    from_task = None
    if given is not None:
        with contextlib.suppress(ValueError):  # other wrappers than those of training made the observations
            seen = policy.seen(spec.observations)
            from_task = task_observations.TaskObservations(seen, given, hidden)
    return loaded_policy.LoadedPolicy(policy, spec.observations, to_task, from_task, source=str(found))


def _lacks(observations: types.NestedSpec, hidden: Sequence[str]) -> bool:
    """Returns whether observations lack some of the entries that only the critic sees."""
    if not hidden or not isinstance(observations, Mapping):
        return False
    return "critic" not in observations and not {*hidden} <= {*observations}


def _with_hidden(
    spec: specs.EnvironmentSpec, learned: specs.EnvironmentSpec, hidden: Sequence[str]
) -> specs.EnvironmentSpec:
    """Adds what only the critic saw in training to the specs of an environment that lacks it."""
    entries = networks.critic_entries(learned.observations, hidden)
    of_critic = {name: learned.observations[name] for name in entries}
    return spec._replace(observations={**specs.without(spec.observations, entries), **of_critic})


def check_actions(
    path: str | os.PathLike[str],
    spec: specs.EnvironmentSpec,
    described: run_folder.RunDescription | None = None,
) -> None:
    """Checks that an environment takes actions as a run has learned them, whose weights fit.

    Args:
        path: The folder of the run or of a checkpoint.
        spec: The specs of the environment.
        described: The run's description; None to read it, if there is one.

    Raises:
        ValueError: The environment's actions have other bounds, or another number of values.
    """
    if described is None:
        folder = run_of(pathlib.Path(path))
        if not (folder / run_folder.FILE).exists():
            return
        described = run_folder.read(folder)
    if not described.environment_specs:  # a run of an older version
        return
    learned = described.make_specs().actions
    for ours, theirs in zip(tree.flatten(spec.actions), tree.flatten(learned), strict=False):
        if not specs.agree(ours, theirs):
            wanted, given = specs.describe_apart(theirs, ours)
            raise ValueError(
                f"The environment's actions must be {wanted}, as {path} has learned them, got {given}. Give "
                "an environment with these, in the same wrappers. To learn from recorded episodes in other "
                "units, train with `--env ID`, which converts them."
            )


def _stored_task(described: run_folder.RunDescription, import_code: bool) -> types.NestedSpec:
    """Returns the spec of the task's actions from the description that is stored with the weights."""
    try:
        return described.make_task_actions(import_code=import_code)
    except (ImportError, ValueError) as error:
        raise ValueError(
            "The task's actions must be known for `actions='task'`, but they are not stored with these "
            f"weights, and the environment cannot be made to read them: {error} Pass the environment, "
            "wrapped as in training: load_policy(..., environment=environment, actions='task')."
        ) from error


def export_policy(
    path: str | os.PathLike[str],
    file: str | os.PathLike[str],
    *,
    format: Literal["safetensors", "pt2", "onnx"] = "safetensors",
    checkpoint: str | int | os.PathLike[str] = "latest",
    half: bool = False,
    import_code: bool = False,
    actions: programs.Interface | None = None,
    compare_episodes: int = 0,
) -> programs.Comparison | None:
    """Writes the policy that a run has learned to one file.

    A program maps observations [B, ...], for any B >= 1, to actions without exploration. If the policy has
    a memory, the program also takes its state and `start`, true where an episode starts with this
    observation, and returns the next state.

    Args:
        path: The folder of a run or of a checkpoint.
        file: The file to write; it is replaced as a whole.
        format: `safetensors`: the weights that actors fetch, with the contents of run.json, for
            `load_policy`; reading such a file runs no code. `pt2`: a program of `torch.export`, which needs
            only torch. `onnx`: a program for ONNX runtimes (extra `onnx`), see `programs.write_onnx`.
        checkpoint: The checkpoint of a run: "latest", "best", its number of environment steps or its folder.
        half: Whether to round float32 weights to float16, which halves the size. A tensor with numbers that
            float16 cannot hold stays float32. `load_policy` still computes in float32.
        import_code: As for `load_policy`.
        actions: The interface of a program. "agent", the default of pt2: observations as in training, and
            continuous actions within [-1, 1]. "task", the default of onnx: the observations and actions of
            the bare environment, which is made to find them. For weights, choose them when loading.
        compare_episodes: The number of episodes to play in each of 1 and then 7 environments, to compare a
            program with the policy before the file is replaced; 0 for none. Only for programs.

    Returns:
        The comparison, or None if there is none.

    Raises:
        ValueError: As for `load_policy`; or the policy's weights are not named tensors (safetensors); or it
            cannot be written as a module, or differs from its program (pt2, onnx).
        OSError: The file cannot be written.
    """
    if half and format != "safetensors":
        raise ValueError(
            f"`half` must be False if `format` is {format}: a program computes with the weights it stores."
        )
    if actions not in (None, "agent") and format == "safetensors":
        raise ValueError(
            f"`actions` must be 'agent' if `format` is {format}, got {actions!r}. Pass it to `load_policy`, "
            "which reads such files."
        )
    path, file = pathlib.Path(path), pathlib.Path(file)
    found = checkpointing.find(path, checkpoint)
    described = description_of(path, found)
    if format != "safetensors":
        interface = actions or ("task" if format == "onnx" else "agent")
        write = _program_writer(found, described, format, interface, import_code, compare_episodes)
        return _write_whole(file, write)
    from safetensors import numpy as safetensors

    builder = described.make_builder(import_code=import_code)
    # The form of the state is checked before the file is written.
    variables = checkpointing.load_state(found)["policy_variables"]
    tensors: dict[str, np.ndarray] = {}
    for name, value in zip(builder.policy_variables, variables, strict=True):
        if not isinstance(value, dict) or not all(isinstance(part, torch.Tensor) for part in value.values()):
            raise ValueError(
                f"`{name}` must be a dict of tensors to be exported, got {type(value).__name__}."
            )
        tensors |= {f"{name}.{part}": np.asarray(tensor, order="C") for part, tensor in value.items()}
    metadata = {
        _METADATA: json.dumps(described.content()),
        "checkpoint": f"{checkpointing.env_steps(found):09d}",
        "format": "np",
    }
    if half:
        tensors = {name: _halved(tensor) for name, tensor in tensors.items()}
        metadata["rounded"] = "float16"
    _write_whole(file, lambda new: safetensors.save_file(tensors, new, metadata))
    return None


def note_score(file: pathlib.Path, score: Score) -> None:
    """Writes a score into a file of weights, which is replaced as a whole."""
    import safetensors.numpy

    _, _, metadata = _read_safetensors(file)
    tensors = safetensors.numpy.load_file(file)  # in the precision of the file
    metadata = {**metadata, _SCORE: json.dumps(score._asdict())}
    _write_whole(file, lambda new: safetensors.numpy.save_file(tensors, new, metadata))


def _halved(tensor: np.ndarray) -> np.ndarray:
    """Rounds float32 to float16 if float16 can hold all the values."""
    if tensor.dtype == np.float32 and np.abs(tensor).max(initial=0.0) <= np.finfo(np.float16).max:
        return tensor.astype(np.float16)
    return tensor


def _program_writer(
    checkpoint: pathlib.Path,
    described: run_folder.RunDescription,
    format: Literal["pt2", "onnx"],
    interface: programs.Interface,
    import_code: bool,
    num_episodes: int,
) -> Callable[[str], programs.Comparison | None]:
    """Returns a function that writes a policy as a program and compares the two."""
    policy = load_policy(checkpoint, import_code=import_code, actions=interface)
    module = policy.as_module()
    observations = policy.seen(described.make_specs(import_code=import_code).observations)
    if interface == "task":
        with contextlib.closing(
            described.make_environment_factory(import_code=import_code)(0)
        ) as environment:
            _, recorder = programs.record(environment, interface)
            task = recorder.shown(recorder.observation_spec())
        module, observations = programs.from_task(module, task, observations), task
    inputs = programs.make_inputs(policy, observations)

    def write(file: str) -> programs.Comparison | None:
        if format == "pt2":
            torch.export.save(programs.export(module, inputs), file)
        else:
            programs.write_onnx(module, inputs, file, json.dumps(described.content()))
        if not num_episodes:
            return None
        program = programs.load(file) if format == "pt2" else programs.load_onnx(file)
        make = described.make_environment_factory(import_code=import_code)
        agent = load_policy(checkpoint, import_code=import_code)
        return programs.compare(program, agent, make, interface, num_episodes)

    return write


def description_of(path: pathlib.Path, checkpoint: pathlib.Path) -> run_folder.RunDescription:
    """Returns the description of a run, given its folder or a checkpoint in <run>/checkpoints."""
    return run_folder.read(checkpoint.parent.parent if checkpoint == path else path)


def _locate(path: str | os.PathLike[str]) -> pathlib.Path:
    """Returns the path, or the path of the installed or downloaded weights with this name.

    An existing path comes first. Only a name that begins with hf: is downloaded.

    Raises:
        ValueError: It looks like a name of weights, but there are no such weights.
    """
    if os.fspath(path).startswith(hub.PREFIX) and not pathlib.Path(path).exists():
        return hub.download(os.fspath(path))
    known = results.list_weights()
    if pathlib.Path(path).exists() or ":" not in os.fspath(path):
        return pathlib.Path(path)
    if (name := os.fspath(path)) not in known:
        raise ValueError(
            f"There are no weights '{name}' in the library; it has {', '.join(known) or 'none'}. Use one of "
            "them, the folder of a run, or a file that `minerva export` wrote."
        )
    return known[name]


def run_of(path: pathlib.Path) -> pathlib.Path:
    """Returns the folder of a run, given it or a checkpoint in <run>/checkpoints."""
    is_checkpoint = not (path / run_folder.FILE).exists() and (path.parent.parent / run_folder.FILE).exists()
    return path.parent.parent if is_checkpoint else path


def _read_safetensors(
    path: pathlib.Path,
) -> tuple[run_folder.RunDescription, dict[str, np.ndarray], dict[str, str]]:
    """Returns the run's description, the weights in the precision of training, and all metadata."""
    import safetensors

    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, TypeError) as error:
        raise ValueError(
            f"{path} must be a complete safetensors file, as `minerva export` writes it, but is not: {error}."
        ) from error
    if _METADATA not in metadata:
        raise ValueError(
            f"{path} must name the agent of its weights under '{_METADATA}' in its metadata, but does not. "
            "`minerva export RUN` writes such files."
        )
    if "rounded" in metadata:
        tensors = {
            name: tensor.astype(np.float32) if tensor.dtype == np.float16 else tensor
            for name, tensor in tensors.items()
        }
    try:
        _env_steps(metadata), _score(metadata)
    except (RecursionError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} must say which checkpoint its weights are of and what they scored as `minerva export` "
            f"writes it, got something else: {error}. Export the run again: minerva export RUN"
        ) from error
    return run_folder.parse(metadata[_METADATA], path), tensors, metadata


def _score(metadata: dict[str, str]) -> Score | None:
    """Returns the score in the metadata of weights, or None if there is none."""
    found = metadata.get(_SCORE)
    if not found:
        return None
    score = Score(**reading.fit_fields(Score, reading.json_text(found)))
    if score.num_episodes < 2 or min(score.seed, score.std, score.rounding) < 0:
        raise ValueError(f"a score must be of >= 2 episodes and have no negative spread, got {score}")
    return score


def _env_steps(metadata: dict[str, str]) -> int:
    """Returns the steps of the checkpoint in the metadata of weights, 0 if it is not named."""
    return int(metadata.get("checkpoint", "").partition("-")[0] or 0)


def _below(tensors: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    prefix = f"{name}."
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def _write_whole(file: pathlib.Path, write: Callable[[str], Written]) -> Written:
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".export-") as folder:
        new = pathlib.Path(folder, file.name)
        written = write(str(new))
        os.replace(new, file)
    return written
